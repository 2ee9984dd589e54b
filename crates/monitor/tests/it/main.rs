//! Tests of the monitor as a whole: it reads a library that answers as the NVIDIA driver does.

#[cfg(test)]
mod machine;
#[cfg(test)]
mod readings;
