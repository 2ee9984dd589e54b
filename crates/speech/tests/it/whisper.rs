//! A small Whisper model in a folder of Hugging Face gives the features, logits, gradients and texts of `transformers`.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::{Choice, Grid, HostBatch, HostSample, Key, Remat, SampleId};
use plimsoll_layers::LengthPolicy;
use plimsoll_speech::asr::Search;
use plimsoll_speech::whisper::{
    Generation, LongWhisper, Whisper, WhisperConfig, WhisperTranscriber, read_metadata, weights, write_hugging_face,
};
use plimsoll_speech::{ModelError, ModelFolder};
use plimsoll_tape::{NamedTensor, NamedVisitor, Noise, Pass, Task, TensorBatch, apply, backward, collect, walk};
use plimsoll_text::Tokenizer;
use plimsoll_train::write_weights;

use crate::fixture::{Fixture, close};
use crate::pytorch::TOLERANCE;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/whisper")
}

fn model(device: &Device) -> Whisper {
    let config = read_metadata(&folder()).unwrap().model;
    apply(config.init_unseeded(device), weights(&folder()).unwrap().0).unwrap()
}

/// Returns the ids of the tokenizer for ids of the file.
fn shifted(ids: Vec<u32>) -> Vec<u32> {
    ids.into_iter().map(|id| id + Tokenizer::RESERVED_IDS as u32).collect()
}

fn batch(fixture: &Fixture) -> HostBatch {
    let [_, frames, width] = fixture.shape("features").unwrap().try_into().unwrap();
    let sample = |index: usize| HostSample {
        id: SampleId(index as u64),
        name: index.to_string(),
        features: fixture.values("features")[index * frames * width..][..frames * width].to_vec(),
        tokens: shifted(fixture.numbers(&format!("text.{index}"))),
        reference: Vec::new(),
    };
    HostBatch::collate(&[sample(0), sample(1)], width, &Grid::default()).unwrap()
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_into_vec().unwrap()
}

/// Lists the gradients of all parameters by name.
fn gradients(model: &Whisper, gradients: &GradientsParams) -> Vec<NamedTensor> {
    struct All<'a>(&'a GradientsParams, Vec<NamedTensor>);
    impl NamedVisitor for All<'_> {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let found = self.0.get::<D>(param.id).unwrap_or_else(|| panic!("{name} has no gradient"));
            let shape = found.dims().to_vec();
            self.1.push(NamedTensor { name: name.into(), shape, values: values(found) });
        }
    }
    let mut all = All(gradients, Vec::new());
    walk(model, &mut all);
    all.1
}

#[test]
fn logits_loss_and_gradients_equal_those_of_transformers() {
    let fixture = Fixture::read("whisper");
    let device = Device::flex().autodiff();
    let (model, batch) = (model(&device), batch(&fixture));
    let tensors = TensorBatch::send(&batch, &device);
    let encoded = model.encode(model.windows(&tensors), &Pass::plain());
    close("encoded", &values(encoded.clone()), fixture.values("encoded"), TOLERANCE);
    let inputs: Vec<Vec<u32>> = tensors.tokens.iter().map(|text| text[..text.len() - 1].to_vec()).collect();
    let logits = values(model.logits(&inputs, encoded, &Pass::plain()));
    let [_, width, rows] = fixture.shape("logits").unwrap().try_into().unwrap();
    for (index, input) in inputs.iter().enumerate() {
        let part = index * width * rows..(index * width + input.len()) * rows;
        close("logits", &logits[part.clone()], &fixture.values("logits")[part], TOLERANCE);
    }
    assert_eq!(model.weight(&batch), inputs.iter().map(|input| input.len() as f64).sum::<f64>());
    // The gradients as a folder of their own, which is read as weights are.
    let of_transformers = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "generation_config.json"] {
        fs::copy(folder().join(name), of_transformers.path().join(name)).unwrap();
    }
    let named = |(name, shape, values): (&str, &[usize], &[f32])| NamedTensor {
        name: name.into(),
        shape: shape.into(),
        values: values.into(),
    };
    let expected: Vec<NamedTensor> = fixture.under("gradient.").map(named).collect();
    write_weights(&of_transformers.path().join("model.safetensors"), &expected).unwrap();
    let (expected, _) = weights(of_transformers.path()).unwrap();
    for remat in [Remat::None, Remat::Half, Remat::All] {
        for attention_chunk in [None, std::num::NonZeroU32::new(7)] {
            let pass = Pass::new(Choice { remat, attention_chunk, ..Choice::default() }, Noise::off());
            let loss = model.loss(&tensors, &pass).sum;
            close("loss", &values(loss.clone()), fixture.values("loss"), TOLERANCE);
            let found = gradients(&model, &backward(loss, &model));
            assert_eq!(found.len(), expected.len());
            for found in &found {
                let expected = expected.iter().find(|expected| expected.name == found.name).unwrap();
                close(&found.name, &found.values, &expected.values, TOLERANCE);
            }
        }
    }
}

#[test]
fn greedy_texts_equal_those_of_transformers_and_a_beam_of_one_finds_them() {
    let fixture = Fixture::read("whisper");
    let device = Device::flex();
    let model = model(&device);
    let tokenizer = read_metadata(&folder()).unwrap().tokenizer;
    let generation = Generation::new(&tokenizer, Some("en"), &folder()).unwrap();
    let encoded = model.encode(model.windows(&TensorBatch::send(&batch(&fixture), &device)), &Pass::inference());
    let expected: Vec<Vec<u32>> = (0..2).map(|index| shifted(fixture.numbers(&format!("generated.{index}")))).collect();
    assert!(expected.iter().any(|text| text.len() > 3), "{expected:?}");
    assert_eq!(model.generate(encoded.clone(), &generation, &Search::Greedy), expected);
    let beam = Search::Attention { width: std::num::NonZeroUsize::MIN, length_bonus: 0.0 };
    let found = model.generate(encoded, &generation, &beam);
    for (found, expected) in found.iter().zip(&expected) {
        // A beam may end a text before the last place.
        assert!(expected.starts_with(found) || found == expected, "{found:?} {expected:?}");
    }
}

#[test]
fn texts_with_times_equal_those_of_transformers() {
    let (fixture, times) = (Fixture::read("whisper"), Fixture::read("whisper_times"));
    let device = Device::flex();
    let model = model(&device);
    let tokenizer = read_metadata(&folder()).unwrap().tokenizer;
    let generation = Generation::new(&tokenizer, Some("en"), &folder()).unwrap();
    let encoded = model.encode(model.windows(&TensorBatch::send(&batch(&fixture), &device)), &Pass::inference());
    let expected: Vec<Vec<u32>> = (0..2).map(|index| shifted(times.numbers(&format!("timed.{index}")))).collect();
    assert_eq!(model.generate_with_times(encoded.clone(), &generation, &Search::Greedy), expected);
    let beam = Search::Attention { width: std::num::NonZeroUsize::MIN, length_bonus: 0.0 };
    let found = model.generate_with_times(encoded, &generation, &beam);
    for (found, expected) in found.iter().zip(&expected) {
        assert!(!found.is_empty() && expected.starts_with(found), "{found:?} {expected:?}");
    }
}

/// Segments with times lie in the recording, in order, however it comes in blocks.
#[test]
fn segments_with_times_lie_in_their_recording() {
    let transcriber = WhisperTranscriber::load(&folder(), None, &Device::flex()).unwrap();
    assert!(transcriber.has_times());
    let samples: Vec<f32> = (0..25_000).map(|n| (n as f32 * 0.05).sin() * ((n / 4000) % 2) as f32 * 0.1).collect();
    let mut found = Vec::new();
    for block in [1_000, 7_919, 25_000] {
        let mut long = LongWhisper::new(&transcriber, Search::Greedy).with_times();
        let mut segments: Vec<_> = samples.chunks(block).flat_map(|block| long.push(block)).collect();
        segments.extend(long.finish());
        assert!(!segments.is_empty());
        let mut before = 0.0;
        for segment in &segments {
            assert!(before <= segment.start && segment.start <= segment.end && segment.end <= 25_000.0 / 16_000.0);
            before = segment.start;
        }
        found.push(segments.into_iter().map(|segment| (segment.text, segment.start, segment.end)).collect::<Vec<_>>());
    }
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
}

/// What is heard, followed by silence, has the features of the window that `transformers` fills with zeros.
#[test]
fn features_of_a_filled_window_equal_those_of_transformers() {
    let fixture = Fixture::read("whisper");
    let config = LogMelConfig::preset("whisper-padded").unwrap();
    let log_mel = LogMel::new(&config).unwrap();
    let model =
        WhisperConfig { features: 80, positions: 50, d_model: 16, heads: 2, ..WhisperConfig::named("tiny").unwrap() };
    let model = WhisperConfig { vocabulary: 10, ..model }.init(&Device::flex(), Key::new(1));
    let features = log_mel.extract(fixture.values("sound"));
    let loudest = features.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let frames = features.len() / 80;
    assert!(frames < 100 && loudest > 0.0, "{frames} {loudest}");
    let other = HostSample {
        id: SampleId(1),
        name: "longer".into(),
        features: vec![0.25; 120 * 80],
        tokens: vec![5],
        reference: Vec::new(),
    };
    let sample = HostSample { id: SampleId(0), name: "one".into(), features, ..other.clone() };
    let alone = HostBatch::collate(std::slice::from_ref(&sample), 80, &Grid::default()).unwrap();
    let found = values(model.windows(&TensorBatch::send(&alone, &Device::flex())));
    close("features", &found, fixture.values("heard"), 1e-4);
    // Beside a longer utterance, which is cut, nothing changes.
    let both = HostBatch::collate(&[other, sample], 80, &Grid::default()).unwrap();
    let tensors = TensorBatch::send(&both, &Device::flex());
    let windows = values(model.windows(&tensors));
    assert_eq!(windows.len(), 2 * 100 * 80);
    assert_eq!(&windows[100 * 80..], &found[..]);
    assert_eq!(&windows[..100 * 80], &vec![0.25; 100 * 80][..]);
    assert_eq!(model.loss(&tensors, &Pass::plain()).truncated, [0]);
}

#[test]
fn a_model_is_written_as_it_was_read() {
    let out = tempfile::tempdir().unwrap();
    let metadata = read_metadata(&folder()).unwrap();
    let (read, _) = weights(&folder()).unwrap();
    write_hugging_face(out.path(), &metadata, &read, &folder()).unwrap();
    let again = read_metadata(out.path()).unwrap();
    assert_eq!(again, metadata);
    assert_eq!(weights(out.path()).unwrap().0, read);
    assert_eq!(ModelFolder(out.path()).kind().unwrap(), "whisper");
    // Its own names and values, too: `transformers` reads the tensors of the first file in the second.
    let tensors = |folder: &Path| plimsoll_train::read_weights(&folder.join("model.safetensors")).unwrap();
    let (first, second) = (tensors(&folder()), tensors(out.path()));
    for tensor in &first {
        let found = second.iter().find(|found| found.name == tensor.name);
        let found = found.unwrap_or_else(|| panic!("{} is not written", tensor.name));
        assert_eq!(found.shape, tensor.shape, "{}", tensor.name);
        let far = found.values.iter().zip(&tensor.values).any(|(a, b)| (a - b).abs() > 1e-6);
        assert!(!far, "{}", tensor.name);
    }
    assert_eq!(first.len(), second.len());
    // A language of its own is that of the next reader.
    let mut german = metadata.clone();
    german.tokenizer = metadata.tokenizer.clone().with_languages(["de".into()]);
    write_hugging_face(out.path(), &german, &read, &folder()).unwrap();
    assert_eq!(read_metadata(out.path()).unwrap().tokenizer.languages(), ["de"]);
    // It is replaced by the language of a model that begins with it.
    let next = tempfile::tempdir().unwrap();
    write_hugging_face(next.path(), &metadata, &read, out.path()).unwrap();
    assert_eq!(read_metadata(next.path()).unwrap().tokenizer.languages(), ["en"]);
    let rules = next.path().join("generation_config.json");
    for (name, found) in [("german", Ok("de")), ("<|en|>", Ok("en")), ("klingon", Err("names the language `klingon`"))]
    {
        let text = fs::read_to_string(&rules).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["language"] = name.into();
        fs::write(&rules, value.to_string()).unwrap();
        match (read_metadata(next.path()), found) {
            (Ok(metadata), Ok(code)) => assert_eq!(metadata.tokenizer.languages(), [code]),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn texts_are_framed_in_their_language() {
    let tokenizer = read_metadata(&folder()).unwrap().tokenizer;
    assert_eq!(tokenizer.languages(), ["en"]);
    let names = tokenizer.names();
    let frame = |tokenizer: &Tokenizer, language| {
        let frame = tokenizer.whisper_frame(language).unwrap();
        frame.begin.iter().map(|id| names[*id as usize].clone()).collect::<Vec<String>>().join("")
    };
    let english = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>";
    assert_eq!(frame(&tokenizer, None), english);
    assert_eq!(frame(&tokenizer, Some("de")), english);
    let both = tokenizer.clone().with_languages(["de".into(), "en".into()]);
    assert_eq!(frame(&both, Some("de")), english.replace("en", "de"));
    assert_eq!(frame(&both, None), english);
    assert_eq!(frame(&tokenizer.clone().with_languages([]), None), "<|startoftranscript|><|notimestamps|>");
    // Each text begins with a space, which a reader does not see.
    let ids = tokenizer.encode("hello world").unwrap();
    assert_eq!(names[ids[0] as usize], "Ġhello");
    assert_eq!(tokenizer.decode(&ids), "hello world");
    let frame = tokenizer.whisper_frame(None).unwrap();
    let whole: Vec<u32> = frame.begin.iter().chain(&ids).chain([&frame.end]).copied().collect();
    assert_eq!(tokenizer.decode(&whole), "hello world");
}

#[test]
fn a_recording_of_any_length_is_transcribed() {
    let transcriber = WhisperTranscriber::load(&folder(), None, &Device::flex());
    // The small model has ten bands, which the features of the folder follow.
    let transcriber = transcriber.unwrap();
    for seconds in [0.0, 0.01, 0.4, 1.3] {
        let samples: Vec<f32> = (0..(16_000.0 * seconds) as usize).map(|n| (n as f32 * 0.05).sin() * 0.1).collect();
        let text = transcriber.transcribe(&samples, &Search::Greedy);
        assert!(seconds > 0.0 || text.is_empty(), "{text}");
    }
    // A language that is asked for is spoken, whatever that of the folder is.
    let languages = |language| {
        let transcriber = WhisperTranscriber::load(&folder(), language, &Device::flex()).unwrap();
        transcriber.tokenizer().languages().to_vec()
    };
    assert_eq!((languages(None), languages(Some("de"))), (vec!["en".to_owned()], vec!["de".to_owned()]));
    let error = WhisperTranscriber::load(&folder(), Some("kok"), &Device::flex()).err().unwrap();
    assert!(error.to_string().contains("no language `kok`"), "{error}");
}

/// Makes a copy of the folder with one file changed, and returns what is said of it.
fn changed(change: impl Fn(&Path)) -> String {
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"] {
        fs::copy(folder().join(name), copy.path().join(name)).unwrap();
    }
    change(copy.path());
    let read = read_metadata(copy.path()).and_then(|_| weights(copy.path()).map(drop));
    let error: ModelError = read.expect_err("the folder is damaged");
    plimsoll_core::error_chain(&error)
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    let config = |from: &'static str, to: &'static str| {
        changed(move |folder| {
            let text = fs::read_to_string(folder.join("config.json")).unwrap();
            assert!(text.contains(from), "{from}");
            fs::write(folder.join("config.json"), text.replace(from, to)).unwrap();
        })
    };
    let cases = [
        (config("\"whisper\"", "\"bart\""), "names the model type `bart`, and only `whisper` is read"),
        (config("\"gelu\"", "\"relu\""), "its activation is `relu`"),
        (config("\"d_model\": 16", "\"d_model\": 0"), "no multiple of the width 0"),
        (config("\"d_model\": 16", "\"d_model\": -3"), "has no number `d_model`"),
        (
            config("\"encoder_layers\": 2", "\"encoder_layers\": 3"),
            "has no tensor `model.encoder.layers.2.self_attn.q_proj.weight`",
        ),
        (config("\"encoder_layers\": 2", "\"encoder_layers\": 1"), "has the tensor `encoder.layers.1."),
        (config("\"max_source_positions\": 25", "\"max_source_positions\": 24"), "are not the sines of Whisper"),
        (config("\"encoder_attention_heads\": 2", "\"encoder_attention_heads\": 4"), "a model with both equal is read"),
        (changed(|folder| fs::remove_file(folder.join("tokenizer.json")).unwrap()), "has no tokenizer.json"),
        (changed(|folder| fs::remove_file(folder.join("model.safetensors")).unwrap()), "has no model.safetensors"),
        (
            changed(|folder| fs::rename(folder.join("model.safetensors"), folder.join("pytorch_model.bin")).unwrap()),
            "is a pickle, which can run any program, so it is not read",
        ),
        (
            changed(|folder| {
                let bytes = fs::read(folder.join("model.safetensors")).unwrap();
                fs::write(folder.join("model.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
            }),
            "is not a complete safetensors file",
        ),
        (
            changed(|folder| fs::write(folder.join("tokenizer.json"), "{}").unwrap()),
            "its tokenizer.json cannot be read",
        ),
        (
            changed(|folder| fs::write(folder.join("config.json"), "[").unwrap()),
            "does not describe a model of this version",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}: {expected}");
    }
}

#[test]
fn published_sizes_have_their_numbers_of_parameters() {
    // Of the models of transformers, with the bias of keys that ours have besides.
    for (name, millions) in [("tiny", 37.76), ("base", 72.59), ("small", 241.73), ("medium", 763.86), ("turbo", 808.88)]
    {
        let config = WhisperConfig::named(name).unwrap();
        let count = plimsoll_tape::on_capture_device(|device| plimsoll_tape::count(&config.init_unseeded(device)));
        let extra = config.d_model * (config.encoder_layers + 2 * config.decoder_layers);
        // The positions of the encoder are no parameters here.
        let sines = config.positions * config.d_model;
        let found = (count as usize - extra + sines) as f64 / 1e6;
        assert!((found - millions).abs() < 0.01, "{name}: {found}");
    }
}

/// The policy of the configuration holds where the pass has no choice of its own.
#[test]
fn attention_in_chunks_gives_the_same_texts() {
    let device = Device::flex();
    let whole = model(&device);
    let config =
        WhisperConfig { length: LengthPolicy::Chunked(std::num::NonZeroU32::new(4).unwrap()), ..*whole.config() };
    let chunked = apply(config.init_unseeded(&device), collect(&whole)).unwrap();
    let features = Tensor::<3>::from_data(TensorData::new(vec![0.3_f32; 50 * 10], [1, 50, 10]), &device);
    let [a, b] = [&whole, &chunked].map(|model| values(model.encode(features.clone(), &Pass::inference())));
    close("encoded", &a, &b, 1e-5);
    assert_eq!(whole.devices().len(), 1);
}
