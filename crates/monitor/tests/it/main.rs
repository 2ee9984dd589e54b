//! Tests of the crate as a whole: it reads a library that answers as the NVIDIA driver does, and what it shows and writes
//! is judged by the programs that people use.

#[cfg(test)]
mod browser;
#[cfg(test)]
mod looks;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod made_up;
#[cfg(test)]
mod pages;
#[cfg(test)]
#[cfg(unix)]
mod pane;
#[cfg(test)]
mod readings;
#[cfg(test)]
#[cfg(unix)]
mod terminal;
#[cfg(test)]
mod tool;
