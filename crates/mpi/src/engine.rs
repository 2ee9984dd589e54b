//! One rank's side of all operations: what has arrived, who is alive, and who has failed. It never waits, and the caller
//! says what time it is, so that tests run whole failures in no time.

use std::time::Duration;

use plimsoll_core::CollectiveError;

use crate::limits::Limits;
use crate::operation::Operation;
use crate::packet::{Header, Kind, body};
use crate::post::Post;
use crate::transport::Transport;
use crate::watch::Watch;

/// The state of one rank.
pub(crate) struct Engine<T> {
    post: Post<T>,
    limits: Limits,
    watch: Watch,
    /// Operations that are complete.
    completed: u64,
    failures: Vec<Failure>,
    /// Whether this rank has reported a failure, or its end.
    reported: bool,
    /// Ranks that have reported their end.
    left: Vec<bool>,
    /// Whether a rank has ended in the middle of a sum by the library: its end would wait for that.
    cut_off: bool,
    leaving_since: Option<Duration>,
}

/// A reason why operations cannot be completed.
struct Failure {
    /// Operations above this number cannot be completed: a rank that was needed takes no part.
    after: u64,
    error: CollectiveError,
    /// Whether the rank has only ended. A failure explains more, and is preferred.
    only_left: bool,
}

/// An operation that has begun.
pub(crate) struct Started {
    number: u64,
    since: Duration,
    moved: u64,
}

/// Time for the reports of a failure to reach all others, and for them to end.
const FAREWELL: Duration = Duration::from_secs(5);
/// A report is a sentence; a longer one is cut.
const CAUSE_LEN_MAX: usize = 4096;

impl<T: Transport> Engine<T> {
    pub(crate) fn new(transport: T, limits: Limits, now: Duration) -> Self {
        let left = vec![false; transport.ranks()];
        let watch = Watch::new(limits.beat(), limits.silence(), now);
        let post = Post::new(transport);
        Self {
            post,
            limits,
            watch,
            completed: 0,
            failures: Vec::new(),
            reported: false,
            left,
            cut_off: false,
            leaving_since: None,
        }
    }

    pub(crate) fn post(&mut self) -> &mut Post<T> {
        &mut self.post
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// If it cannot be completed because of an earlier failure.
    pub(crate) fn start(&mut self, now: Duration) -> Result<Started, CollectiveError> {
        self.tick(now);
        let number = self.completed + 1;
        match self.failure(number) {
            Some(error) => Err(error),
            None => Ok(Started { number, since: now, moved: self.post.moved() }),
        }
    }

    /// Goes on with an operation. Returns its end, or `None` while it lasts.
    pub(crate) fn advance(
        &mut self,
        operation: &mut impl Operation,
        started: &mut Started,
        now: Duration,
    ) -> Option<Result<(), CollectiveError>> {
        self.tick(now);
        let end = self.go_on(operation, started, now);
        match &end {
            Some(Ok(())) => self.completed = started.number,
            Some(Err(error)) => self.report(error.clone()),
            None => {}
        }
        end
    }

    fn go_on<O: Operation>(
        &mut self,
        operation: &mut O,
        started: &mut Started,
        now: Duration,
    ) -> Option<Result<(), CollectiveError>> {
        match operation.advance(started.number, &mut self.post) {
            Ok(true) => return Some(Ok(())),
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
        if let Some(error) = self.failure(started.number) {
            return Some(Err(error));
        }
        if self.post.moved() != started.moved {
            (started.moved, started.since) = (self.post.moved(), now);
            return None;
        }
        if let Some(error) = self.post.stray(started.number, O::KINDS) {
            return Some(Err(error));
        }
        let awaited = operation.awaited(started.number, &self.post);
        let wait = self.limits.wait();
        let over = now.saturating_sub(started.since) > wait;
        over.then(|| match awaited {
            Some(rank) => Err(CollectiveError::timed_out(rank, wait)),
            None => {
                let cause = format!("has waited {} s for a sum of the MPI library", wait.as_secs());
                Err(CollectiveError { rank: self.post.rank(), cause })
            }
        })
    }

    /// Returns the rank that an operation waits for.
    pub(crate) fn awaited(&self, operation: &impl Operation, started: &Started) -> Option<usize> {
        operation.awaited(started.number, &self.post)
    }

    /// Reads what has arrived, sends a heartbeat if one is due, and looks whether the watched rank is silent.
    pub(crate) fn tick(&mut self, now: Duration) {
        if self.post.ranks() == 1 {
            return;
        }
        if let Err(error) = self.look(now) {
            self.report(error);
        }
    }

    fn look(&mut self, now: Duration) -> Result<(), CollectiveError> {
        let (rank, ranks) = (self.post.rank(), self.post.ranks());
        let (watched, next) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        let arrived = self.post.pump(Some(watched))?;
        if arrived.heard {
            self.watch.hear(now);
        }
        for (from, header, packet) in arrived.reports {
            self.read_report(from, header, body(&packet));
        }
        if self.watch.takes_beat(now) && !self.left[next] {
            self.post.send_aside(next, Header::new(Kind::Beat, self.completed).packet(&[]))?;
        }
        let silent = self.watch.is_silent(now);
        if silent && !self.left[watched] {
            let cause = format!("has given no sign of life for {} s", self.limits.silence().as_secs());
            return Err(CollectiveError { rank: watched, cause });
        }
        Ok(())
    }

    fn read_report(&mut self, from: usize, header: Header, cause: &[u8]) {
        let only_left = header.kind == Kind::Leave && cause.is_empty();
        match header.kind {
            Kind::Leave => {
                self.left[from] = true;
                self.cut_off |= header.total > 0;
            }
            Kind::Failure => {}
            _ => return,
        }
        let cause = String::from_utf8_lossy(&cause[..cause.len().min(CAUSE_LEN_MAX)]).into_owned();
        let error = match (only_left, usize::try_from(header.part)) {
            (false, Ok(rank)) if rank < self.post.ranks() => CollectiveError { rank, cause },
            _ => CollectiveError::gone(from),
        };
        self.failures.push(Failure { after: header.operation, error, only_left });
    }

    /// Returns why operation `number` cannot be completed.
    fn failure(&self, number: u64) -> Option<CollectiveError> {
        let mut found = self.failures.iter().filter(|failure| failure.after < number);
        let explains = found.clone().find(|failure| !failure.only_left);
        explains.or_else(|| found.next()).map(|failure| failure.error.clone())
    }

    /// Records that no further operation can be completed because of `error`, and reports it to all others. Only the
    /// first report is sent.
    pub(crate) fn report(&mut self, error: CollectiveError) {
        if !self.reported {
            self.reported = true;
            self.send_report(Kind::Failure, Some(&error));
        }
        if self.failure(self.completed + 1).is_none_or(|known| known != error) {
            self.failures.push(Failure { after: self.completed, error, only_left: false });
        }
    }

    fn send_report(&mut self, kind: Kind, error: Option<&CollectiveError>) {
        let part = error.map_or(0, |error| error.rank as u64);
        let mut cause = error.map_or("", |error| error.cause.as_str());
        cause = &cause[..cause.floor_char_boundary(CAUSE_LEN_MAX)];
        let total = u64::from(kind == Kind::Leave && self.cut_off);
        let packet = Header { part, total, ..Header::new(kind, self.completed) }.packet(cause.as_bytes());
        for to in self.post.others() {
            // A rank that cannot be reached needs no report, and the others get theirs.
            let _ = self.post.send_aside(to, packet.clone());
        }
    }

    /// Reports to all others that this rank has ended.
    pub(crate) fn leave(&mut self, now: Duration) {
        if self.leaving_since.is_none() {
            self.leaving_since = Some(now);
            let rank = self.post.rank();
            self.left[rank] = true;
            self.reported = true;
            self.cut_off |= self.post.is_summing();
            let error = self.failures.iter().find(|failure| !failure.only_left).map(|failure| failure.error.clone());
            self.send_report(Kind::Leave, error.as_ref());
        }
    }

    /// Waits for the others to end. Returns `None` while they have not, then whether all have.
    pub(crate) fn farewell(&mut self, hurry: bool, now: Duration) -> Option<bool> {
        self.tick(now);
        if self.left.iter().all(|&left| left) && self.post.outstanding() == 0 {
            return Some(!self.cut_off);
        }
        let failed = hurry || self.failures.iter().any(|failure| !failure.only_left);
        let limit = if failed { FAREWELL } else { self.limits.wait() };
        let since = self.leaving_since.unwrap_or_default();
        (now.saturating_sub(since) > limit).then_some(false)
    }
}
