//! Mistakes in scenarios, and compiling with a program in the place of `ptxas`.

use std::ffi::c_int;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cuda::{ADD, Cuda, Handle, MIB, call};
use crate::process::{on, one_gpu};

fn init(cuda: &Cuda) -> c_int {
    call!(cuda, cuInit(0 => u32))
}

#[test]
fn a_mistake_is_reported_with_its_line() {
    let remains = on("gpu A\nmemory 1GB\n", |cuda| {
        assert_eq!([init(cuda), init(cuda)], [999, 999]);
    });
    let stderr = remains.map(|remains| remains.stderr).unwrap_or_default();
    // The test writes two lines before these.
    let expected = "line 4: `memory 1GB` is not `memory SIZE`, such as 24GiB";
    assert!(stderr.is_empty() || stderr.matches(expected).count() == 1, "{stderr}");
}

#[test]
fn an_unknown_function_is_a_mistake() {
    let remains = on(&format!("fail cuMemAlloc 2\n{}", one_gpu("")), |cuda| assert_eq!(init(cuda), 999));
    assert!(remains.is_none_or(|remains| remains.stderr.contains("`fail cuMemAlloc`")));
}

#[test]
fn a_machine_may_have_no_gpu() {
    on("driver 12090\n", |cuda| assert_eq!(init(cuda), 100));
}

/// Resources of the kernel `add` by a script in the place of `ptxas`, which refuses what has the word `refuse`.
const COMPILER: &str = "#!/bin/sh\ngrep -q refuse \"$5\" && { echo \"syntax error in $2\" >&2; exit 1; }\n\
    head -c 3000000 /dev/zero >\"$4\"\n\
    echo 'ptxas info : Function properties for add' >&2\n\
    echo ' 64 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads' >&2\n\
    echo 'ptxas info : Used 255 registers, 2048 bytes smem' >&2\n";

/// Writes the compiler into a folder, and returns the lines of a scenario for it.
fn compiler(folder: &Path) -> String {
    let path = folder.join("compiler");
    std::fs::write(&path, COMPILER).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    format!("ptxas {}\nptx {}\n", path.display(), folder.join("ptx").display())
}

#[test]
fn modules_are_compiled_and_their_resources_count() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!("stacks held\n{}{}", compiler(folder.path()), one_gpu("multiprocessors 10"));
    let remains = on(&scenario, |cuda| {
        cuda.begin();
        let left = cuda.left();
        let module = cuda.load(ADD).unwrap();
        // The code takes two grains, and 64 bytes for each of 10 x 1536 threads take one.
        assert_eq!(left - cuda.left(), 6 * MIB);
        let function = cuda.function(module, c"add").unwrap();
        let attribute = |number: c_int| {
            let mut value = 0;
            assert_eq!(
                call!(cuda, cuFuncGetAttribute(
                    &mut value => &mut c_int, number => c_int, function => Handle
                )),
                0
            );
            value
        };
        assert_eq!([0, 1, 3, 4].map(attribute), [256, 2048, 64, 255]);
        assert_eq!(cuda.launch(function, 1, 256, [0, 0], 0), 0);
        let larger = ADD.replace("256, 1, 1", "1024, 1, 1");
        let larger = cuda.function(cuda.load(&larger).unwrap(), c"add").unwrap();
        assert_eq!(cuda.launch(larger, 1, 512, [0, 0], 0), 701, "its registers do not suffice");
        assert_eq!(cuda.load(&ADD.replace(".version", "// refuse\n.version")), Err(218));
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("max_stack"), remains.number("spilling_kernels")), (64, 2));
    let add = &remains.books["kernels"]["add"];
    let number = |name: &str| add[name].as_u64();
    assert_eq!(["registers", "stack", "shared"].map(number), [Some(255), Some(64), Some(2048)]);
    assert!(number("spilling") > Some(0), "{add}");
    assert_eq!((remains.number("code"), remains.number("stacks")), (6_000_000, 2 * MIB as u64));
    assert!(remains.stderr.contains("syntax error in -arch=sm_86"), "{}", remains.stderr);
    let kept = std::fs::read_dir(folder.path().join("ptx")).unwrap().count();
    assert_eq!(kept, 7, "three texts, and the code and the log of two");
}
