//! The calls of MPI, with its errors as results.
//!
//! rsmpi ignores most error codes and ties requests to the lifetime of buffers, which a wait with a limit cannot keep. So
//! these calls go to its bindings.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use mpi::ffi;

/// Error of a call of MPI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {reason}")]
pub struct MpiCallError {
    /// Name of the function.
    pub call: &'static str,
    /// What MPI says about the error.
    pub reason: String,
}

/// A communicator of our own, whose messages meet no others.
#[derive(Clone, Copy)]
pub(crate) struct Communicator(ffi::MPI_Comm);

/// A send or a receive that is under way.
pub(crate) struct Request(ffi::MPI_Request);

/// A message that has arrived, or begun to.
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) len: usize,
    handle: ffi::MPI_Message,
}

// SAFETY: a communicator is a handle (a pointer or a number), which MPI allows to use from any thread.
unsafe impl Send for Communicator {}
// SAFETY: as for a communicator.
unsafe impl Send for Request {}

/// Tag of all our messages: their headers say what they are.
const TAG: c_int = 0;

/// Makes the error of a call from its code.
fn check(call: &'static str, code: c_int) -> Result<(), MpiCallError> {
    // MPI_SUCCESS is 0 by the standard.
    if code == 0 {
        return Ok(());
    }
    // Four times what Open MPI and MPICH need.
    let (mut text, mut len) = ([0_u8; 2048], 0);
    // SAFETY: the buffer is longer than MPI_MAX_ERROR_STRING, which is 256 in Open MPI and 512 in MPICH.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let text = &text[..usize::try_from(len).unwrap_or(0).min(text.len())];
    Err(MpiCallError { call, reason: String::from_utf8_lossy(text).into_owned() })
}

impl Communicator {
    /// Makes a communicator of all ranks, which returns errors instead of ending the program.
    pub(crate) fn of_all_ranks() -> Result<Self, MpiCallError> {
        // SAFETY: MPI is initialized, as `MpiWorld` makes sure; all ranks make these calls in this order.
        unsafe {
            let world = ffi::RSMPI_COMM_WORLD;
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN))?;
            let mut own = MaybeUninit::uninit();
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(world, own.as_mut_ptr()))?;
            let own = own.assume_init();
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(own, ffi::RSMPI_ERRORS_RETURN))?;
            Ok(Self(own))
        }
    }

    /// Makes a communicator of the ranks that share memory with this one.
    pub(crate) fn of_node(self) -> Result<Self, MpiCallError> {
        let mut node = MaybeUninit::uninit();
        // SAFETY: all ranks make this call; the handle is written when it succeeds.
        unsafe {
            let (kind, info) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            let code = ffi::MPI_Comm_split_type(self.0, kind, 0, info, node.as_mut_ptr());
            check("MPI_Comm_split_type", code)?;
            Ok(Self(node.assume_init()))
        }
    }

    /// Makes a communicator of the ranks that have the same color as this one.
    pub(crate) fn of_color(self, color: usize) -> Result<Self, MpiCallError> {
        let mut part = MaybeUninit::uninit();
        // SAFETY: all ranks make this call; the handle is written when it succeeds.
        unsafe {
            check("MPI_Comm_split", ffi::MPI_Comm_split(self.0, count(color), 0, part.as_mut_ptr()))?;
            Ok(Self(part.assume_init()))
        }
    }

    /// Gives the communicator back. All ranks make this call.
    pub(crate) fn free(mut self) {
        // SAFETY: the handle is not used afterwards.
        unsafe { ffi::MPI_Comm_free(&mut self.0) };
    }

    pub(crate) fn rank(self) -> Result<usize, MpiCallError> {
        let mut rank = 0;
        // SAFETY: the communicator is valid.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.0, &mut rank) })?;
        Ok(usize::try_from(rank).expect("a rank is not negative"))
    }

    pub(crate) fn ranks(self) -> Result<usize, MpiCallError> {
        let mut ranks = 0;
        // SAFETY: the communicator is valid.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.0, &mut ranks) })?;
        Ok(usize::try_from(ranks).expect("a number of ranks is not negative"))
    }

    /// Gathers one number of each rank. Waits for all of them, without a limit of time.
    pub(crate) fn gather_number(self, own: u64) -> Result<Vec<u64>, MpiCallError> {
        let mut all = vec![0_u64; self.ranks()?];
        // SAFETY: the buffers hold one number, and one for each rank.
        let code = unsafe {
            let (from, to) = ((&raw const own).cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
            ffi::MPI_Allgather(from, 1, ffi::RSMPI_UINT64_T, to, 1, ffi::RSMPI_UINT64_T, self.0)
        };
        check("MPI_Allgather", code)?;
        Ok(all)
    }

    /// Replaces the values by their sums, by MPI's own algorithm. Waits for all ranks, without a limit of time.
    pub(crate) fn all_reduce(self, values: &mut [f32], sums: &mut [f32]) -> Result<(), MpiCallError> {
        assert_eq!(values.len(), sums.len());
        let count = c_int::try_from(values.len()).expect("MPI counts values with 31 bits");
        // SAFETY: both buffers hold `count` values.
        let code = unsafe {
            let (from, to) = (values.as_ptr().cast::<c_void>(), sums.as_mut_ptr().cast::<c_void>());
            ffi::MPI_Allreduce(from, to, count, ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, self.0)
        };
        check("MPI_Allreduce", code)
    }

    /// Begins to sum `values` over all ranks into `sums` of each rank.
    ///
    /// # Safety
    /// Both have one length. They must stay where they are, untouched, until the request is complete.
    pub(crate) unsafe fn begin_all_reduce(
        self,
        values: *const [f32],
        sums: *mut [f32],
    ) -> Result<Request, MpiCallError> {
        let mut request = MaybeUninit::uninit();
        // SAFETY: the caller keeps both.
        unsafe {
            let (from, to, len) = (values.cast::<c_void>(), sums.cast::<c_void>(), count(values.len()));
            let (float, sum) = (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM);
            let code = ffi::MPI_Iallreduce(from, to, len, float, sum, self.0, request.as_mut_ptr());
            check("MPI_Iallreduce", code)?;
            Ok(Request(request.assume_init()))
        }
    }

    /// Begins to sum `values` over all ranks into `sums` of rank 0.
    ///
    /// # Safety
    /// As for [`Communicator::begin_all_reduce`].
    pub(crate) unsafe fn begin_reduce(self, values: *const [f32], sums: *mut [f32]) -> Result<Request, MpiCallError> {
        let mut request = MaybeUninit::uninit();
        // SAFETY: the caller keeps both.
        unsafe {
            let (from, to, len) = (values.cast::<c_void>(), sums.cast::<c_void>(), count(values.len()));
            let (float, sum) = (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM);
            let code = ffi::MPI_Ireduce(from, to, len, float, sum, 0, self.0, request.as_mut_ptr());
            check("MPI_Ireduce", code)?;
            Ok(Request(request.assume_init()))
        }
    }

    /// Begins to replace the values of all ranks by those of rank 0.
    ///
    /// # Safety
    /// As for [`Communicator::begin_all_reduce`].
    pub(crate) unsafe fn begin_broadcast(self, values: *mut [f32]) -> Result<Request, MpiCallError> {
        let mut request = MaybeUninit::uninit();
        // SAFETY: the caller keeps the values.
        unsafe {
            let (own, len) = (values.cast::<c_void>(), count(values.len()));
            let code = ffi::MPI_Ibcast(own, len, ffi::RSMPI_FLOAT, 0, self.0, request.as_mut_ptr());
            check("MPI_Ibcast", code)?;
            Ok(Request(request.assume_init()))
        }
    }

    /// Begins to send bytes.
    ///
    /// # Safety
    /// The bytes must stay where they are, unchanged, until the request is complete.
    pub(crate) unsafe fn begin_send(self, to: usize, bytes: *const [u8]) -> Result<Request, MpiCallError> {
        let mut request = MaybeUninit::uninit();
        let (count, to) = (count(bytes.len()), count(to));
        // SAFETY: the caller keeps the bytes.
        unsafe {
            let start = bytes.cast::<c_void>();
            let code = ffi::MPI_Isend(start, count, ffi::RSMPI_UINT8_T, to, TAG, self.0, request.as_mut_ptr());
            check("MPI_Isend", code)?;
            Ok(Request(request.assume_init()))
        }
    }

    /// Returns the next message of any rank that has begun to arrive.
    pub(crate) fn next_message(self) -> Result<Option<Message>, MpiCallError> {
        let (mut found, mut len) = (0, 0);
        let (mut handle, mut status) = (MaybeUninit::uninit(), MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: handle and status are read only if a message was found, which has written them.
        unsafe {
            let (any, tag) = (ffi::RSMPI_ANY_SOURCE, TAG);
            let code = ffi::MPI_Improbe(any, tag, self.0, &mut found, handle.as_mut_ptr(), status.as_mut_ptr());
            check("MPI_Improbe", code)?;
            if found == 0 {
                return Ok(None);
            }
            check("MPI_Get_count", ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut len))?;
            let from = usize::try_from(status.assume_init().MPI_SOURCE).expect("a sender has a rank");
            let len = usize::try_from(len).expect("a message of bytes has a length");
            Ok(Some(Message { from, len, handle: handle.assume_init() }))
        }
    }
}

impl Message {
    /// Begins to receive the message.
    ///
    /// # Safety
    /// The buffer must have the length of the message, and stay where it is until the request is complete.
    pub(crate) unsafe fn begin_receive(mut self, buffer: *mut [u8]) -> Result<Request, MpiCallError> {
        let mut request = MaybeUninit::uninit();
        // SAFETY: the caller keeps the buffer.
        unsafe {
            let (start, count) = (buffer.cast::<c_void>(), count(buffer.len()));
            let code = ffi::MPI_Imrecv(start, count, ffi::RSMPI_UINT8_T, &mut self.handle, request.as_mut_ptr());
            check("MPI_Imrecv", code)?;
            Ok(Request(request.assume_init()))
        }
    }
}

impl Request {
    /// Returns whether the request is complete, and lets MPI move its messages on.
    pub(crate) fn is_complete(&mut self) -> Result<bool, MpiCallError> {
        let mut complete = 0;
        // SAFETY: a request that is complete becomes the null request, which may be tested again.
        let code = unsafe { ffi::MPI_Test(&mut self.0, &mut complete, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Test", code)?;
        Ok(complete != 0)
    }
}

fn count(len: usize) -> c_int {
    c_int::try_from(len).expect("packets, ranks and nodes are far below 2^31")
}
