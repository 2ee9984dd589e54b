//! Tests of the crate as a whole: it reads a library that answers as the NVIDIA driver does, and programs that people use
//! judge what it shows and writes.

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
mod readers;
#[cfg(test)]
mod readings;
#[cfg(test)]
#[cfg(unix)]
mod terminal;
#[cfg(test)]
mod tool;
