//! The gradient of a step: piece by piece, over all replicas, and read before anything moves.

use std::borrow::Cow;

use plimsoll_core::{Batch, MemoryGate, OutOfMemory, Stage};
use plimsoll_tape::{BufferSnapshot, Task};

use super::ahead::{Ahead, Meanwhile};
use super::cut::{Cut, Queue, Wave};
use super::gather::Gathered;
use super::piece::{Fault, Job};
use super::{StepError, Trainer, Unfit, clean_up};
use crate::StateForm;
use crate::attempt::attempt;

/// Times that the norm of a step is read before its device is given up.
const NORM_READS: usize = 8;
/// Times that a step is begun anew, where a device said only at its end that something had failed.
const BEGINNINGS: usize = 8;

/// What a step is computed from.
pub(super) struct Asked<'a, B> {
    pub(super) batch: &'a B,
    pub(super) step: u64,
    /// The pieces, where a ledger says which.
    pub(super) cuts: Option<&'a [Cut]>,
}

impl<B> Clone for Asked<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Asked<'_, B> {}

impl<B: Batch> Asked<'_, B> {
    /// Names of all samples, for messages.
    fn names(&self) -> Vec<String> {
        self.batch.names(0..self.batch.len())
    }
}

impl<T: Task> Trainer<T> {
    /// The gradient of the whole batch and its norm, read.
    pub(super) fn computed(
        &mut self,
        asked: Asked<'_, T::Batch>,
        failures: &mut Vec<OutOfMemory>,
        meanwhile: &mut Meanwhile<'_, T::Batch>,
    ) -> Result<(Gathered, f64), StepError> {
        let step = asked.step;
        let gone = |source| StepError::Gone { step, source };
        // With others, nothing that failed may go into the sum: it would be lost for all.
        let mut wary = self.replica.ranks() > 1;
        let before = BufferSnapshot::from_module(&self.task);
        let mut begun = 0;
        for beginning in 0..BEGINNINGS {
            if beginning > 0 {
                self.task = before.restore(&self.task);
                // What was sent ahead is for the next step.
                self.ahead = None;
            }
            let gathered = self.gathered(asked, wary, failures);
            if !self.replica.agree(gathered.is_ok()).map_err(gone)? {
                return Err(gathered.err().unwrap_or(StepError::Elsewhere { step }));
            }
            let mut gathered = gathered?;
            gathered.join(&self.task, &*self.replica).map_err(gone)?;
            if self.config.tells_late && beginning == 0 && failures.is_empty() {
                // All is in the device's queue, and the host would only wait.
                let (mut ahead, governor, device) = (None, &self.governor, &self.device);
                // A piece that cannot be sent ahead is sent when its time comes.
                meanwhile(&mut |next| ahead = attempt(|| Ahead::send(next, governor, device)).ok().flatten());
                self.ahead = ahead;
            }
            // What was begun in an attempt that came to nothing was begun all the same.
            begun += gathered.begun;
            gathered.begun = begun;
            if let Some(norm) = self.read(&mut gathered, asked, wary, failures)? {
                gathered.tell(&*self.replica, asked.batch).map_err(gone)?;
                return Ok((gathered, norm));
            }
            if !self.config.tells_late {
                break;
            }
            // A sum is lost, and with it all that was added up: once more, and every piece is asked.
            wary = true;
        }
        let reason = "no reading of the gradient's norm succeeded".into();
        let source = failures.last().cloned().unwrap_or(OutOfMemory { stage: Stage::Norm, reason });
        Err(StepError::Unfit { step, names: asked.names(), source })
    }

    /// The norm of the gradient, as soon as all replicas could read it; nothing where that is not to be.
    fn read(
        &self,
        gathered: &mut Gathered,
        asked: Asked<'_, T::Batch>,
        wary: bool,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<Option<f64>, StepError> {
        let step = asked.step;
        let gone = |source| StepError::Gone { step, source };
        for _ in 0..NORM_READS {
            let read = gathered.read(&self.task, &self.device);
            let read = read.and_then(|norm| self.watch.check(Stage::Norm).map(|()| norm).map_err(Fault::Memory));
            let all = self.replica.agree(read.is_ok()).map_err(gone)?;
            match read {
                Ok(norm) if all => {
                    // One card's sums need not be another's to the last bit, and all must move alike.
                    let first = self.replica.broadcast(0, norm.to_le_bytes().to_vec()).map_err(gone)?;
                    return Ok(Some(first[..].try_into().map_or(f64::NAN, f64::from_le_bytes)));
                }
                Ok(_) => {}
                Err(Fault::Memory(failure)) => failures.push(failure),
                // Nobody knows what a sum that was not written has met, until every piece was asked.
                Err(Fault::Broken(reason)) if self.config.tells_late && !wary => {
                    failures.push(OutOfMemory { stage: Stage::Norm, reason });
                }
                Err(Fault::Broken(reason)) => {
                    return Err(StepError::Device { step, names: asked.names(), reason });
                }
            }
            clean_up(&self.device);
            // Where a sum itself was lost, reading it again does not help; where only its reading failed, nothing is lost.
            // All must do the same next, whoever of them lost something.
            if self.config.tells_late && !self.replica.agree(gathered.is_written(&self.task)).map_err(gone)? {
                break;
            }
        }
        Ok(None)
    }

    /// The gradients of all pieces, added up.
    fn gathered(
        &mut self,
        asked: Asked<'_, T::Batch>,
        wary: bool,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<Gathered, StepError> {
        let Asked { batch, step, cuts } = asked;
        let mut weight = [self.task.weight(batch)];
        self.replica.sum(&mut weight).map_err(|source| StepError::Gone { step, source })?;
        let mut gathered = Gathered::new(weight[0].max(f64::MIN_POSITIVE));
        let mut queue = Queue::of(batch, cuts);
        let mut ahead = self.ahead.take();
        while let Some(wave) = queue.next_wave(batch, &self.governor, self.config.lanes) {
            if let [cut] = wave.cuts[..]
                && cut.effort == Cut::LEFT_OUT
            {
                gathered.leave_out(cut, self.task.weight(&batch.part(cut.places())), batch.names(cut.places()));
                continue;
            }
            let is_only = gathered.is_empty() && queue.is_empty() && wave.cuts.len() == 1;
            let asks = self.config.tells_late && (wary || !is_only);
            let before = BufferSnapshot::from_module(&self.task);
            let failed = self.wave(asked, &wave, asks, (&mut gathered, ahead.take()))?;
            if failed.is_empty() {
                gathered.fitted(wave.shape);
                continue;
            }
            // Of lanes that moved them together nobody can say whose part is whose; models that have some use one lane.
            if failed.len() == wave.cuts.len() {
                self.task = before.restore(&self.task);
            }
            clean_up(&self.device);
            let (failed, new): (Vec<Cut>, Vec<OutOfMemory>) = failed.into_iter().unzip();
            for cut in queue.failed(&failed, &wave, &mut self.governor) {
                // The last thing before an utterance is left out: the optimizer's state makes room. It is the same to the last
                // bit on the host, which what is in 8 bits would not be.
                if self.config.tells_late && self.optimizer.form() == StateForm::Full {
                    self.optimizer.set_form(StateForm::Host);
                    queue.once_more(cut);
                    continue;
                }
                let names = batch.names(cut.places());
                match (self.config.unfit, new.first()) {
                    (Unfit::Stop, Some(source)) => {
                        return Err(StepError::Unfit { step, names, source: source.clone() });
                    }
                    _ => gathered.leave_out(cut, self.task.weight(&batch.part(cut.places())), names),
                }
            }
            failures.extend(new);
        }
        Ok(gathered)
    }

    /// Computes a wave and adds it up; gives what of it did not fit.
    fn wave(
        &self,
        asked: Asked<'_, T::Batch>,
        wave: &Wave,
        asks: bool,
        (gathered, ahead): (&mut Gathered, Option<Ahead<T>>),
    ) -> Result<Vec<(Cut, OutOfMemory)>, StepError> {
        let Asked { batch, step, .. } = asked;
        let job = Job {
            scale: self.scale.factor() / gathered.weight(),
            key: self.config.key.with("step").at(step),
            choice: self.governor.choice(batch.shape()).unwrap_or(self.config.choice),
            device: &self.device,
            gate: &self.watch,
        };
        let piece = |cut: &Cut| match cut.len as usize == batch.len() {
            true => Cow::Borrowed(batch),
            false => Cow::Owned(batch.part(cut.places())),
        };
        let pieces: Vec<Cow<'_, T::Batch>> = wave.cuts.iter().map(piece).collect();
        gathered.begun += pieces.len();
        let sent = match (ahead, &wave.cuts[..], &pieces[..]) {
            (Some(ahead), [cut], [piece]) => ahead.of(*cut, piece),
            _ => None,
        };
        gathered.was_ahead |= sent.is_some();
        let mut failed = Vec::new();
        let done = job.wave(&self.task, &wave.cuts, &pieces, sent);
        self.put_in_queue();
        for ((&cut, piece), done) in wave.cuts.iter().zip(&pieces).zip(done) {
            let done = if asks { done.and_then(|done| done.written(&self.task, &self.device)) } else { done };
            match done.and_then(|done| gathered.add(&self.task, &self.watch, (cut, piece), done)) {
                Ok(()) => {}
                Err(Fault::Memory(failure)) => failed.push((cut, failure)),
                Err(Fault::Broken(reason)) => {
                    return Err(StepError::Device { step, names: piece.names(0..piece.len()), reason });
                }
            }
        }
        Ok(failed)
    }
}
