//! Runs real ranks: this program starts itself under `mpirun`, where that and the feature `mpi` exist.

#[cfg(feature = "mpi")]
#[cfg(test)]
mod mpirun;
#[cfg(feature = "mpi")]
#[cfg(test)]
mod rank;

#[cfg(not(feature = "mpi"))]
#[test]
fn ranks_of_mpirun() {
    println!("skipped: built without the feature `mpi`");
}
