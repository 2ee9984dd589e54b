//! Updates of all parameters at once, in flat tensors: on a GPU, where each kernel costs the host some microseconds.
//!
//! On the CPU a kernel costs no launch, and each parameter is updated alone, while it lies in the cache. Checkpoints name the
//! state by parameter in both cases, so each continues from the checkpoint of the other. An update makes new flat tensors
//! and new views, in the memory of the gradients: a module that was attached before keeps its weights, and a step stays a
//! transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use plimsoll_core::StateForm;
use plimsoll_tape::flat::{FlatGradients, FlatLayout, FlatPart, FlatViews, MOST_VALUES};
use plimsoll_tape::lora::Rates;
use plimsoll_tape::transfer::uploaded;

use super::blocks::{BLOCK, Blocks, SMALL, WORDS, bears_eight, to_checkpoint_order};
use super::config::OptimizerConfig;
use super::rule::{StatePart, StepSize};
use super::stored::{StatePacker, StoredState, read_codes};
use super::tensor::{CODES, SCALES, StateData, StateTensor};
use crate::reads::read;

/// Most values of a flat tensor whose running means are converted to fp32 in each step: a step has room for few of them.
const CONVERTED_VALUES: usize = 4 << 20;

/// Weights and running means of all trained parameters of a module in flat tensors.
#[derive(Clone, Debug)]
pub(super) struct FlatState {
    layout: Arc<FlatLayout>,
    /// Weights, for each part of the layout, of which the parameters of the module are `views`; empty if they are not.
    values: Vec<Tensor<1>>,
    views: FlatViews,
    /// Running means for each part of the layout, in the order in which the rule lists them; empty before the first step.
    means: Vec<Vec<StoredState>>,
    /// Factor of the learning rate for each part of the layout.
    factors: Vec<f64>,
    /// The last mask of parameters without a gradient, with their names.
    absent: (Vec<String>, Vec<Tensor<1, Bool>>),
}

impl FlatState {
    /// Lays out the parameters of `module`, with `rates`, for running means in `form`. `each` are the running means so far, by parameter;
    /// it is empty before the first step.
    pub(super) fn new<M: Module>(
        module: &M,
        (form, rates): (StateForm, &Rates),
        rule: &[StatePart],
        each: &BTreeMap<String, Vec<StoredState>>,
    ) -> Self {
        let (small, most) = match form {
            StateForm::Full => (0, MOST_VALUES),
            StateForm::Host => (0, CONVERTED_VALUES),
            StateForm::Eight => (SMALL, CONVERTED_VALUES),
        };
        let layout = FlatLayout::in_groups(module, small, most, |name| rates.factor(name));
        let factor = |part: &FlatPart| part.places.first().map_or(1.0, |place| rates.factor(&place.name));
        let mut state = Self {
            factors: layout.parts().iter().map(factor).collect(),
            layout: Arc::new(layout),
            values: Vec::new(),
            views: FlatViews::default(),
            means: Vec::new(),
            absent: (Vec::new(), Vec::new()),
        };
        state.set_means(rule, each);
        state
    }

    /// Sets the running means by parameter; those of other parameters are zeros.
    pub(super) fn set_means(&mut self, rule: &[StatePart], each: &BTreeMap<String, Vec<StoredState>>) {
        let Some(device) = each.values().flatten().next().map(StoredState::device) else {
            self.means = Vec::new();
            return;
        };
        let of_part = |(index, part): (usize, &FlatPart)| {
            let mean = |nth: usize| {
                let stored =
                    part.places.iter().map(|place| each.get(&place.name).and_then(|all| all.get(nth)).cloned());
                self.joined(index, stored.collect(), &device)
            };
            (0..rule.len()).map(mean).collect()
        };
        self.means = self.layout.parts().iter().enumerate().map(of_part).collect();
    }

    /// Joins the same running mean of all parameters of a part.
    fn joined(&self, part: usize, stored: Vec<Option<StoredState>>, device: &Device) -> StoredState {
        let FlatPart { places, len } = &self.layout.parts()[part];
        let is =
            |form: fn(&StoredState) -> bool| stored.iter().flatten().all(form) && stored.iter().any(Option::is_some);
        if is(|stored| matches!(stored, StoredState::Eight(_))) {
            let range = stored.iter().flatten().find_map(StoredState::range).expect("all are in 8 bits");
            let blocks = stored.into_iter().zip(places).map(|(stored, place)| {
                let rows = place.count().div_ceil(BLOCK);
                match stored {
                    Some(StoredState::Eight(blocks)) => (blocks.codes, blocks.scales),
                    _ => zeros_in_blocks(rows, device),
                }
            });
            let (codes, scales) = blocks.unzip::<_, _, Vec<_>, Vec<_>>();
            let (codes, scales) = (Tensor::cat(codes, 0), Tensor::cat(scales, 0));
            return StoredState::Eight(Box::new(Blocks { codes, scales, count: *len, range }));
        }
        if is(|stored| matches!(stored, StoredState::Host(..))) {
            let mut values = vec![0.0; *len];
            for (stored, place) in stored.into_iter().zip(places) {
                if let Some(StoredState::Host(own, _)) = stored {
                    values[place.start..place.start + own.len()].copy_from_slice(&own);
                }
            }
            return StoredState::Host(values, device.clone());
        }
        let tensors = stored.into_iter().map(|stored| stored.map(StoredState::into_tensor)).collect();
        StoredState::Full(self.layout.gather_part(part, tensors, device))
    }

    /// Returns where the parameters lie.
    pub(super) fn layout(&self) -> &Arc<FlatLayout> {
        &self.layout
    }

    /// Returns the weights after the last step, one tensor for each part of the layout.
    pub(super) fn values(&self) -> &[Tensor<1>] {
        &self.values
    }

    /// Lists all running means.
    pub(super) fn means(&self) -> impl Iterator<Item = &StoredState> {
        self.means.iter().flatten()
    }

    /// Makes the parameters of `module` views of flat tensors, unless they are.
    pub(super) fn attach<M: Module>(&mut self, module: M) -> M {
        if self.is_attached(&module) {
            return module;
        }
        let values = self.layout.gather_parameters(&module);
        self.attach_to(module, values)
    }

    /// Returns whether the parameters of `module` are views of the flat tensors.
    pub(super) fn is_attached<M: Module>(&self, module: &M) -> bool {
        !self.values.is_empty() && self.views.are_of(module)
    }

    fn attach_to<M: Module>(&mut self, module: M, values: Vec<Tensor<1>>) -> M {
        self.values = values;
        let attached = self.layout.attach(module, self.values.clone());
        self.views = attached.views;
        attached.module
    }

    /// Takes one step with `gradients`, multiplied by `scale`.
    ///
    /// # Panics
    /// If the means are in host memory and the device cannot return them.
    pub(super) fn step<M: Module>(
        &mut self,
        module: M,
        gradients: FlatGradients,
        scale: f64,
        (config, step_size, packer): (&OptimizerConfig, StepSize, &StatePacker),
    ) -> M {
        let values = match self.is_attached(&module) {
            true => std::mem::take(&mut self.values),
            false => self.layout.gather_parameters(&module),
        };
        self.mask(gradients.absent, &values);
        let means = std::mem::take(&mut self.means);
        let mut means = means.into_iter();
        let mut moved = Vec::new();
        for (index, (value, gradient)) in values.into_iter().zip(gradients.values).enumerate() {
            let old: Vec<Tensor<1>> = means.next().into_iter().flatten().map(StoredState::into_tensor).collect();
            let before = self.absent.1.get(index).map(|mask| (mask.clone(), value.clone(), old.clone()));
            let step_size = step_size.times(self.factors[index]);
            let (mut new, mut kept) = config.update(step_size, value, gradient * scale, old);
            if let Some((mask, value, old)) = before {
                new = new.mask_where(mask.clone(), value);
                let zeros = || kept.iter().map(Tensor::zeros_like).collect();
                let old: Vec<_> = if old.is_empty() { zeros() } else { old };
                kept = kept.into_iter().zip(old).map(|(kept, old)| kept.mask_where(mask.clone(), old)).collect();
            }
            let bears = self.bears_eight(index);
            let pack = |(tensor, part): (Tensor<1>, &StatePart)| {
                // A step cannot return an error.
                packer.pack(tensor, *part, bears).unwrap_or_else(|reason| panic!("{reason}"))
            };
            self.means.push(kept.into_iter().zip(config.parts()).map(pack).collect());
            moved.push(new);
        }
        self.attach_to(module, moved)
    }

    /// Converts the running means with `packer`.
    pub(super) fn converted(&self, packer: &StatePacker, rule: &[StatePart]) -> Result<Vec<Vec<StoredState>>, String> {
        let of_part = |(index, means): (usize, &Vec<StoredState>)| {
            let bears = self.bears_eight(index);
            means.iter().cloned().zip(rule).map(|(mean, part)| packer.convert(mean, *part, bears)).collect()
        };
        self.means.iter().enumerate().map(of_part).collect()
    }

    /// Replaces the running means by the same in another form.
    pub(super) fn adopt(&mut self, means: Vec<Vec<StoredState>>) {
        self.means = means;
    }

    /// Returns the running means as tensors of a checkpoint, or the name of a parameter and the message of the device that
    /// cannot return them.
    pub(super) fn save(&self, rule: &[StatePart]) -> Result<Vec<StateTensor>, (String, String)> {
        let mut tensors = Vec::new();
        for (part, means) in self.layout.parts().iter().zip(&self.means) {
            for (mean, of_rule) in means.iter().zip(rule) {
                let failed = |reason| (part.places.first().map(|place| place.name.clone()).unwrap_or_default(), reason);
                tensors.extend(saved(part, mean, of_rule.name).map_err(failed)?);
            }
        }
        Ok(tensors)
    }

    /// Returns whether the means of a part may be kept in 8 bits: it has no small parameters then.
    fn bears_eight(&self, part: usize) -> bool {
        self.layout.parts()[part].places.iter().all(|place| bears_eight(place.count()))
    }

    /// Makes the masks of the parameters named `absent`, which a step leaves as they are. No masks if there are none.
    fn mask(&mut self, absent: Vec<String>, values: &[Tensor<1>]) {
        if self.absent.0 == absent {
            return;
        }
        let of_part = |(part, values): (&FlatPart, &Tensor<1>)| {
            let mut mask = vec![false; part.len];
            for place in part.places.iter().filter(|place| absent.contains(&place.name)) {
                mask[place.start..place.start + place.count()].fill(true);
            }
            Tensor::from_data(uploaded(TensorData::new(mask, [part.len])), &values.device())
        };
        let masks = self.layout.parts().iter().zip(values).map(of_part);
        self.absent.1 = if absent.is_empty() { Vec::new() } else { masks.collect() };
        self.absent.0 = absent;
    }
}

/// Codes and scales of `rows` blocks whose values are as small as they can be.
fn zeros_in_blocks(rows: usize, device: &Device) -> (Tensor<1, Int>, Tensor<2>) {
    (Tensor::zeros([rows * WORDS], (device, DType::I32)), Tensor::zeros([rows, 1], (device, DType::F32)))
}

/// Cuts one running mean of a part into the tensors of its parameters, by one read of the whole.
fn saved(part: &FlatPart, mean: &StoredState, name: &str) -> Result<Vec<StateTensor>, String> {
    let full = |values: Vec<f32>| {
        let of = |place: &plimsoll_tape::flat::FlatPlace| {
            let values = values[place.start..place.start + place.count()].to_vec();
            let name = format!("{}.{name}", place.name);
            StateTensor { name, shape: vec![values.len()], data: StateData::F32(values) }
        };
        part.places.iter().map(of).collect()
    };
    match mean {
        StoredState::Full(tensor) => Ok(full(read(tensor.clone())?)),
        StoredState::Host(values, _) => Ok(full(values.clone())),
        StoredState::Eight(blocks) => {
            let codes = read_codes(blocks.codes.clone())?;
            let scales: Vec<f32> = read(blocks.scales.clone().reshape([-1]))?;
            let mut tensors = Vec::new();
            for place in &part.places {
                let (first, rows) = (place.start / BLOCK, place.count().div_ceil(BLOCK));
                let words = to_checkpoint_order(&codes[first * WORDS..(first + rows) * WORDS]);
                let scales = scales[first..first + rows].to_vec();
                let name = format!("{}.{name}", place.name);
                tensors.push(StateTensor {
                    name: format!("{name}{CODES}"),
                    shape: vec![words.len()],
                    data: StateData::I32(words),
                });
                tensors.push(StateTensor {
                    name: format!("{name}{SCALES}"),
                    shape: vec![scales.len()],
                    data: StateData::F32(scales),
                });
            }
            Ok(tensors)
        }
    }
}
