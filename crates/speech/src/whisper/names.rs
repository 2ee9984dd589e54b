//! Names and layouts of the tensors in a file of Hugging Face, beside those of our parameters.

use std::collections::HashMap;

use plimsoll_tape::NamedTensor;

use super::WhisperConfig;
use super::model::sinusoid_values;

/// How far the positions of an encoder may be from the sines that they are, in half precision.
const ROUNDING: f32 = 2e-3;

/// Where the values of one of our parameters are in a file of Hugging Face.
enum Place {
    /// In the tensor of this name, as they are.
    Same(String),
    /// In the tensor of this name, which has one axis less: our kernels have a column.
    Kernel(String),
    /// In these matrices, each turned, side by side.
    Turned(Vec<String>),
    /// In these vectors, one after the other; `None` stands for zeros.
    Joined(Vec<Option<String>>),
}

/// Places of parameters by our names.
struct Places(Vec<(String, Place)>);

impl Places {
    /// Lists the places of all parameters of `model`.
    fn new(model: &WhisperConfig) -> Self {
        let mut all = Self(Vec::new());
        for (ours, theirs) in [("first", "conv1"), ("second", "conv2")] {
            let (ours, theirs) = (format!("encoder.{ours}.convolution"), format!("encoder.{theirs}"));
            all.add(format!("{ours}.weight"), Place::Kernel(format!("{theirs}.weight")));
            all.add(format!("{ours}.bias"), Place::Same(format!("{theirs}.bias")));
        }
        all.add("decoder.embedding.weight".into(), Place::Same("decoder.embed_tokens.weight".into()));
        all.add("decoder.positions.table".into(), Place::Same("decoder.embed_positions.weight".into()));
        for (part, count) in [("encoder", model.encoder_layers), ("decoder", model.decoder_layers)] {
            all.norm(&format!("{part}.norm"), &format!("{part}.layer_norm"));
            for index in 0..count {
                all.block(part, index);
            }
        }
        all
    }

    fn add(&mut self, ours: String, place: Place) {
        self.0.push((ours, place));
    }

    fn norm(&mut self, ours: &str, theirs: &str) {
        self.add(format!("{ours}.gamma"), Place::Same(format!("{theirs}.weight")));
        self.add(format!("{ours}.beta"), Place::Same(format!("{theirs}.bias")));
    }

    /// Adds a linear layer that joins layers of the file, which have a bias but for the projections of keys.
    fn linear(&mut self, ours: &str, theirs: &[String]) {
        let weights = theirs.iter().map(|name| format!("{name}.weight")).collect();
        let bias = |name: &String| (!name.ends_with("k_proj")).then(|| format!("{name}.bias"));
        self.add(format!("{ours}.weight"), Place::Turned(weights));
        self.add(format!("{ours}.bias"), Place::Joined(theirs.iter().map(bias).collect()));
    }

    fn block(&mut self, part: &str, index: usize) {
        let (ours, theirs) = (format!("{part}.blocks.{index}"), format!("{part}.layers.{index}"));
        let own = |name: &str| format!("{theirs}.self_attn.{name}");
        self.linear(&format!("{ours}.attention.project"), &["q_proj", "k_proj", "v_proj"].map(own));
        self.linear(&format!("{ours}.attention.output"), &[own("out_proj")]);
        let before = if part == "encoder" { "norm_attention" } else { "norm_self" };
        self.norm(&format!("{ours}.{before}"), &format!("{theirs}.self_attn_layer_norm"));
        if part == "decoder" {
            let cross = |name: &str| format!("{theirs}.encoder_attn.{name}");
            self.linear(&format!("{ours}.cross.query"), &[cross("q_proj")]);
            self.linear(&format!("{ours}.cross.memory"), &["k_proj", "v_proj"].map(cross));
            self.linear(&format!("{ours}.cross.output"), &[cross("out_proj")]);
            self.norm(&format!("{ours}.norm_cross"), &format!("{theirs}.encoder_attn_layer_norm"));
        }
        self.linear(&format!("{ours}.feed_forward.widen"), &[format!("{theirs}.fc1")]);
        self.linear(&format!("{ours}.feed_forward.narrow"), &[format!("{theirs}.fc2")]);
        self.norm(&format!("{ours}.norm_feed_forward"), &format!("{theirs}.final_layer_norm"));
    }
}

/// Turns a matrix of `rows` rows.
fn turned(values: &[f32], rows: usize) -> Vec<f32> {
    let columns = values.len() / rows.max(1);
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

/// Makes our parameters of the tensors of a file; the error names the first tensor that is missing, has another shape, or belongs to
/// another model.
pub(super) fn taken(
    mut tensors: HashMap<String, NamedTensor>,
    model: &WhisperConfig,
) -> Result<Vec<NamedTensor>, String> {
    let mut weights = Vec::new();
    for (name, place) in Places::new(model).0 {
        let mut take = |theirs: &str| {
            tensors.remove(theirs).ok_or_else(|| format!("its file of weights has no tensor `model.{theirs}`"))
        };
        let matrix = |tensor: &NamedTensor| match tensor.shape[..] {
            [rows, columns] => Ok([rows, columns]),
            _ => Err(format!("`{}` has the shape {:?}, and not two axes", tensor.name, tensor.shape)),
        };
        let (shape, values) = match place {
            Place::Same(theirs) => take(&theirs).map(|tensor| (tensor.shape, tensor.values))?,
            Place::Kernel(theirs) => {
                let tensor = take(&theirs)?;
                (tensor.shape.into_iter().chain([1]).collect(), tensor.values)
            }
            Place::Turned(theirs) => {
                let parts = theirs.iter().map(|name| take(name)).collect::<Result<Vec<_>, _>>()?;
                let shapes = parts.iter().map(matrix).collect::<Result<Vec<_>, _>>()?;
                let inputs = shapes[0][1];
                if let Some(part) = parts.iter().zip(&shapes).find(|(_, shape)| shape[1] != inputs) {
                    return Err(format!("`{}` has the shape {:?}, and not {inputs} columns", part.0.name, part.1));
                }
                let joined: Vec<f32> = parts.into_iter().flat_map(|part| part.values).collect();
                let outputs = shapes.iter().map(|shape| shape[0]).sum();
                (vec![inputs, outputs], turned(&joined, outputs))
            }
            Place::Joined(theirs) => {
                let each = model.d_model;
                let part = |theirs: &Option<String>| match theirs {
                    Some(theirs) => take(theirs).map(|tensor| tensor.values),
                    None => Ok(vec![0.0; each]),
                };
                let values: Vec<f32> = theirs.iter().map(part).collect::<Result<Vec<_>, _>>()?.concat();
                (vec![values.len()], values)
            }
        };
        weights.push(NamedTensor { name, shape, values });
    }
    if let Some(positions) = tensors.remove("encoder.embed_positions.weight") {
        let expected = sinusoid_values(model.positions, model.d_model);
        let is_far = positions.values.iter().zip(&expected).any(|(a, b)| (a - b).abs() > ROUNDING);
        if positions.values.len() != expected.len() || is_far {
            return Err("the positions of its encoder are not the sines of Whisper".into());
        }
    }
    // The last layer is the table of tokens.
    tensors.remove("proj_out.weight");
    let mut unknown: Vec<String> = tensors.into_keys().collect();
    unknown.sort_unstable();
    match unknown.first() {
        Some(name) => Err(format!("its file of weights has the tensor `{name}`, which Whisper does not have")),
        None => Ok(weights),
    }
}

/// Makes the tensors of a file of Hugging Face of our parameters. The bias of keys, which changes no weight of attention, is left out.
pub(super) fn given(weights: &[NamedTensor], model: &WhisperConfig) -> Vec<NamedTensor> {
    let ours: HashMap<&str, &NamedTensor> = weights.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let mut tensors = Vec::new();
    let mut add = |name: &str, shape: Vec<usize>, values: Vec<f32>| {
        tensors.push(NamedTensor { name: format!("model.{name}"), shape, values });
    };
    for (name, place) in Places::new(model).0 {
        let Some(found) = ours.get(name.as_str()) else { continue };
        match place {
            Place::Same(theirs) => add(&theirs, found.shape.clone(), found.values.clone()),
            Place::Kernel(theirs) => add(&theirs, found.shape[..3].to_vec(), found.values.clone()),
            Place::Turned(theirs) => {
                let (inputs, outputs) = (found.shape[0], found.shape[1] / theirs.len());
                let all = turned(&found.values, inputs);
                for (theirs, values) in theirs.iter().zip(all.chunks_exact(inputs * outputs)) {
                    add(theirs, vec![outputs, inputs], values.to_vec());
                }
            }
            Place::Joined(theirs) => {
                let each = found.values.len() / theirs.len();
                for (theirs, values) in theirs.iter().zip(found.values.chunks_exact(each)) {
                    if let Some(theirs) = theirs {
                        add(theirs, vec![each], values.to_vec());
                    }
                }
            }
        }
    }
    let shape = vec![model.positions, model.d_model];
    add("encoder.embed_positions.weight", shape, sinusoid_values(model.positions, model.d_model));
    tensors
}
