//! Copies, and what a read returns.

use crate::cuda::{Cuda, Handle, INVALID_VALUE, MIB, add, call};
use crate::process::{on, one_gpu};

#[test]
fn reads_are_zeros_without_kept_contents() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, address) = (cuda.stream(), cuda.allocate(MIB).unwrap());
        assert_eq!(cuda.upload(address, &[1, 2, 3], stream), 0);
        assert_eq!(cuda.read(address, 3, stream), Ok(vec![0; 3]));
        assert_eq!(cuda.read(address + MIB as u64 - 2, 3, stream), Err(INVALID_VALUE));
        cuda.free(address);
        assert_eq!(cuda.upload(address, &[1, 2, 3], stream), INVALID_VALUE);
    });
    let Some(remains) = remains else { return };
    let names = ["uploads", "bytes_up", "reads", "bytes_down", "wild"];
    assert_eq!(names.map(|name| remains.number(name)), [1, 3, 1, 3, 2]);
}

#[test]
fn kept_contents_are_read_until_a_kernel_writes_there() {
    on(&format!("read kept\n{}", one_gpu("")), |cuda| {
        cuda.begin();
        let (stream, address, function) = (cuda.stream(), cuda.allocate(MIB).unwrap(), add(cuda));
        let (input, output) = (address + 64, address + 1024);
        for place in [input, output] {
            assert_eq!(cuda.upload(place, &[1, 2, 3, 4], stream), 0);
        }
        assert_eq!(cuda.read(output, 4, stream), Ok(vec![1, 2, 3, 4]));
        assert_eq!(cuda.launch(function, 10, 256, [input, output], stream), 0);
        assert_eq!(cuda.read(input, 4, stream), Ok(vec![1, 2, 3, 4]));
        assert_eq!(cuda.read(output, 4, stream), Ok(vec![0; 4]));
        cuda.free(address);
        let again = cuda.allocate(MIB).unwrap();
        assert_eq!((again, cuda.read(input, 4, stream)), (address, Ok(vec![0; 4])), "memory is new");
    });
}

#[test]
fn memory_is_copied_and_filled() {
    let remains = on(&format!("read kept\n{}", one_gpu("")), |cuda| {
        cuda.begin();
        let (stream, address) = (cuda.stream(), cuda.allocate(MIB).unwrap());
        let other = cuda.allocate(MIB).unwrap();
        assert_eq!(
            call!(cuda, cuMemsetD16Async(
                address => u64, 0x0201 => u16, 4 => usize, stream => Handle
            )),
            0
        );
        assert_eq!(
            call!(cuda, cuMemcpyDtoDAsync_v2(
                other => u64, address + 1 => u64, 6 => usize, stream => Handle
            )),
            0
        );
        assert_eq!(cuda.read(other, 7, 0), Ok(vec![2, 1, 2, 1, 2, 1, 0]));
        rows(cuda, other, stream);
    });
    let Some(remains) = remains else { return };
    assert_eq!(["copies", "bytes_within", "sets", "bytes_set"].map(|name| remains.number(name)), [1, 6, 1, 8]);
    // Copies of rows count once.
    assert_eq!(["uploads", "bytes_up", "reads", "bytes_down"].map(|name| remains.number(name)), [1, 12, 3, 24]);
}

/// Copies three rows of four bytes to a place with a pitch of 512, and back.
fn rows(cuda: &Cuda, address: u64, stream: Handle) {
    let (mut bytes, pitch): (Vec<u8>, usize) = ((0..12).collect(), 512);
    let host = bytes.as_mut_ptr().addr();
    // The fields of `CUDA_MEMCPY2D`, of which each takes eight bytes: x, y, kind, host, device, array, pitch.
    let on_host = [0, 0, 1, host, 0, 0, 4];
    let on_gpu = [0, 0, 2, 0, address as usize, 0, pitch];
    let copy = |from: [usize; 7], to: [usize; 7]| {
        let fields: Vec<usize> = from.into_iter().chain(to).chain([4, 3]).collect();
        call!(cuda, cuMemcpy2DAsync_v2(fields.as_ptr() => *const usize, stream => Handle))
    };
    assert_eq!(copy(on_host, on_gpu), 0);
    assert_eq!(cuda.read(address + 512, 5, stream), Ok(vec![4, 5, 6, 7, 0]));
    bytes.fill(9);
    assert_eq!(copy(on_gpu, on_host), 0);
    assert_eq!(bytes, (0..12).collect::<Vec<u8>>());
}
