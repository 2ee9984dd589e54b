//! Writes samples to a compressed file: one JSON object a line.

use std::fmt;
use std::fs::File;
use std::io::{Result as IoResult, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::Draft;

use super::Sample;
use super::recording::SampleReader;
use crate::RecordError;

/// Level of compression: the default of zstd. Samples of one GPU shrink to about a tenth.
const LEVEL: i32 = 3;

/// Time between two flushes in seconds. It is a little below a second, so that samples of each second are all flushed.
const FLUSH_SECONDS: f64 = 0.9;

/// Writes samples to a compressed file (`.jsonl.zst`). After a crash the file is readable up to the last second.
///
/// ```
/// use plimsoll_monitor::sample::{Sample, SampleReader, SampleRecorder};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("samples.jsonl.zst");
/// let mut recorder = SampleRecorder::append(&path)?;
/// recorder.record(&Sample { time: 1.0, ..Sample::default() })?;
/// recorder.finish()?;
/// let samples: Vec<Sample> = SampleReader::open(&path)?.collect::<Result<_, _>>()?;
/// assert_eq!(samples[0].time, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SampleRecorder {
    path: PathBuf,
    encoder: zstd::Encoder<'static, File>,
    /// Time of the sample that was flushed last.
    flushed: Option<f64>,
}

impl SampleRecorder {
    /// Opens the recording at `path` to append samples, or creates it. A recording that was cut off or is not compressed
    /// is first written anew with all its samples.
    ///
    /// # Errors
    /// [`RecordError`] if the file cannot be read or written, or is no recording.
    pub fn append(path: &Path) -> Result<Self, RecordError> {
        if path.exists() {
            let mut reader = SampleReader::open(path)?;
            reader.by_ref().try_for_each(|sample| sample.map(|_| ()))?;
            if reader.is_cut() || !reader.is_compressed() {
                rewrite(path)?;
            }
        }
        let file = File::options().create(true).append(true).open(path);
        let encoder = file.and_then(|file| zstd::Encoder::new(file, LEVEL));
        let encoder = encoder.map_err(|source| RecordError::Io { path: path.into(), source })?;
        Ok(Self { path: path.into(), encoder, flushed: None })
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// [`RecordError::Io`] if it cannot be written.
    pub fn record(&mut self, sample: &Sample) -> Result<(), RecordError> {
        self.write(sample).map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }

    /// Completes the file. Dropping the recorder does the same without telling errors.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the end cannot be written.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.encoder.do_finish().map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }

    fn write(&mut self, sample: &Sample) -> IoResult<()> {
        serde_json::to_writer(&mut self.encoder, sample)?;
        self.encoder.write_all(b"\n")?;
        // A clock that went back must not stop the flushes.
        if self.flushed.is_none_or(|flushed| !(0.0..FLUSH_SECONDS).contains(&(sample.time - flushed))) {
            self.encoder.flush()?;
            self.flushed = Some(sample.time);
        }
        Ok(())
    }
}

impl Drop for SampleRecorder {
    fn drop(&mut self) {
        // The samples up to the last flush are in the file in any case.
        let _ = self.encoder.do_finish();
    }
}

impl fmt::Debug for SampleRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleRecorder").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Writes all samples of the recording to a new file, and puts it in the place of the old one.
fn rewrite(path: &Path) -> Result<(), RecordError> {
    let io = |source| RecordError::Io { path: path.into(), source };
    let (draft, file) = Draft::file(path).map_err(io)?;
    let mut encoder = zstd::Encoder::new(file, LEVEL).map_err(io)?;
    for sample in SampleReader::open(path)? {
        serde_json::to_writer(&mut encoder, &sample?).map_err(|error| io(error.into()))?;
        encoder.write_all(b"\n").map_err(io)?;
    }
    encoder.finish().map_err(io)?;
    draft.finish(path).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::super::{GpuSample, Origin, Reading};
    use super::*;

    fn sample(time: f64) -> Sample {
        let gpu = GpuSample { power: Reading::new(time * 3.0, Origin::Nvml), ..GpuSample::default() };
        Sample { time, gpus: vec![gpu], ..Sample::default() }
    }

    fn times(path: &Path) -> (Vec<f64>, bool) {
        let mut reader = SampleReader::open(path).unwrap();
        let times = reader.by_ref().map(|sample| sample.unwrap().time).collect();
        (times, reader.is_cut())
    }

    #[test]
    fn a_recording_is_readable_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl.zst");
        let mut recorder = SampleRecorder::append(&path).unwrap();
        for tenth in 0..50 {
            let now = f64::from(tenth) / 10.0;
            recorder.record(&sample(now)).unwrap();
            let (times, is_cut) = times(&path);
            assert!(is_cut && times.last().is_some_and(|last| now - last < 1.0), "{now}: {times:?}");
        }
        recorder.finish().unwrap();
        let (times, is_cut) = times(&path);
        assert_eq!((times.len(), is_cut), (50, false));
    }

    #[test]
    fn a_recording_is_read_up_to_any_cut_and_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl.zst");
        let mut recorder = SampleRecorder::append(&path).unwrap();
        (0..6).for_each(|time| recorder.record(&sample(f64::from(time))).unwrap());
        drop(recorder);
        let whole = std::fs::read(&path).unwrap();
        let expected = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let mut n_before = 0;
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (found, is_cut) = times(&path);
            assert_eq!(found, expected[..found.len()], "{cut}");
            assert!(found.len() >= n_before && is_cut == (cut > 0), "{cut}");
            n_before = found.len();
            if cut % 7 == 0 {
                SampleRecorder::append(&path).unwrap().record(&sample(9.0)).unwrap();
                let (continued, is_cut) = times(&path);
                assert_eq!(
                    (&continued[..n_before], continued[n_before..].to_vec(), is_cut),
                    (&found[..], vec![9.0], false)
                );
            }
        }
        assert_eq!(n_before, 6);
    }

    #[test]
    fn a_plain_recording_is_read_and_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let line = |time| serde_json::to_string(&sample(time)).unwrap();
        std::fs::write(&path, format!("{}\n\n{}\n{}", line(1.0), line(2.0), &line(3.0)[..20])).unwrap();
        assert_eq!(times(&path), (vec![1.0, 2.0], true));
        SampleRecorder::append(&path).unwrap().record(&sample(3.0)).unwrap();
        assert_eq!(times(&path), (vec![1.0, 2.0, 3.0], false));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_line_is_an_error_and_not_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let line = |time| serde_json::to_string(&sample(time)).unwrap();
        std::fs::write(&path, format!("{}\nnonsense\n{}\n", line(1.0), line(2.0))).unwrap();
        let read: Vec<_> = SampleReader::open(&path).unwrap().collect();
        assert_eq!(read.len(), 3);
        assert!(read[1].as_ref().unwrap_err().to_string().ends_with("line 2 is not a record"));
        assert!(SampleRecorder::append(&path).is_err(), "a file that is no recording is left as it is");
        // Also before the first sample.
        std::fs::write(&path, format!("nonsense\n{}\n", line(1.0))).unwrap();
        let read: Vec<_> = SampleReader::open(&path).unwrap().collect();
        assert_eq!((read[0].is_err(), read[1].as_ref().unwrap().time, read.len()), (true, 1.0, 2));
    }

    #[test]
    fn a_file_without_samples_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let record = "{\"schema_version\":1,\"time\":1.5,\"event\":\"step\",\"step\":1}\n";
        for (text, line) in [
            (record.to_string(), 1),
            (format!("\n\n{record}"), 3),
            (record.repeat(1000), 1),
            ("{}\n".into(), 1),
            ("{\"time\":2.0}".into(), 1),
            ("[]\n".into(), 1),
            ("seed = 7\n".into(), 1),
            ("no line break".into(), 1),
            ("\0\0\0\0".into(), 1),
        ] {
            for is_compressed in [false, true] {
                let bytes = text.clone().into_bytes();
                let bytes = if is_compressed { zstd::encode_all(&bytes[..], LEVEL).unwrap() } else { bytes };
                std::fs::write(&path, &bytes).unwrap();
                let error = SampleReader::open(&path).unwrap_err();
                assert!(matches!(&error, RecordError::NoSamples { line: found, .. } if *found == line), "{text:?}");
                let expected = format!("{} is no recording of a machine: line {line} is not a sample", path.display());
                assert_eq!(error.to_string(), expected);
                assert!(SampleRecorder::append(&path).is_err(), "{text:?}");
                assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it is");
            }
        }
    }

    #[test]
    fn a_recording_that_is_cut_in_its_first_sample_is_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let mut first = sample(1.0);
        first.gpus[0].name = "Größe \u{1f600}".into();
        let line = serde_json::to_string(&first).unwrap();
        for cut in 0..line.len() {
            std::fs::write(&path, &line.as_bytes()[..cut]).unwrap();
            assert_eq!(times(&path), (vec![], cut > 0), "{cut}");
        }
        std::fs::write(&path, &line).unwrap();
        assert_eq!(times(&path), (vec![1.0], false));
    }
}
