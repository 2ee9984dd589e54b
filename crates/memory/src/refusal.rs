//! Finds out why no plan fits, and the cheapest changes that would make the run fit.

use plimsoll_core::{BatchShape, Bytes, Choice, StateForm};

use crate::cost::Speed;
use crate::demand::{PlanOptions, StateOption};
use crate::limit::MemoryLimit;
use crate::model::MemoryModel;
use crate::plan_error::{Change, PlanError, RefusedTensor, Remedy};
use crate::search::{Found, search, unlimited_seconds};
use crate::strategy::{chunk_width, micro_batches, smallest_choice};
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// Factor by which a simpler remedy may be slower than the fastest one.
const SIMPLER: f64 = 1.02;

/// Makes the error for a run that fits `limit` in no way that `options` allow.
pub(crate) fn refusal<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: MemoryLimit,
    speed: &Speed,
) -> Result<PlanError, TraceError> {
    let mut error = does_not_fit(model, options, limit)?;
    if let PlanError::NothingFits { remedy, share, .. } = &mut error {
        *remedy = cheapest_remedy(model, options, limit, speed)?;
        if remedy.is_none() {
            // Activations shrink less than the parameters, so a model with a larger share than that of all memory does not fit.
            let all = options.joined(&model.demand().remedies);
            // A model may not be computable in the other precisions.
            let all = PlanOptions { precisions: options.precisions.clone(), ..all };
            let (_, least) = hardest(model, &all, |size, state| Ok(model.alone(size, state)?.1))?;
            let (_, largest) = hardest(model, &all, |size, _| model.largest(size))?;
            let of = |have: u64, need: u64| have as f64 / need.max(1) as f64;
            // What the device itself needs does not shrink with the model.
            let fixed = model.demand().step.workspace.0;
            let fits = of(limit.budget.0.saturating_sub(fixed), least.0.saturating_sub(fixed));
            let fits = fits.min(of(limit.allocation.0, largest.0));
            *share = Some(fits).filter(|share| (0.01..1.0).contains(share));
        }
    }
    Ok(error)
}

/// Makes the error for a run that fits `limit` in no way that `options` allow, without the search for a remedy.
///
/// # Errors
/// [`TraceError`] where the model cannot be traced.
pub fn does_not_fit<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: impl Into<MemoryLimit>,
) -> Result<PlanError, TraceError> {
    let MemoryLimit { budget, allocation } = limit.into();
    let (bucket, needed) = hardest(model, options, |size, state| Ok(model.alone(size, state)?.1))?;
    let (with_tensor, largest) = hardest(model, options, |size, _| model.largest(size))?;
    if largest > allocation && needed <= budget {
        let refused = RefusedTensor { needed: largest, allowed: allocation };
        let missing = Bytes(largest.0 - allocation.0);
        let (bucket, refused) = (with_tensor, Some(Box::new(refused)));
        return Ok(PlanError::NothingFits {
            bucket,
            needed,
            budget,
            missing,
            refused,
            remedy: None,
            share: None,
            smaller: None,
        });
    }
    // A run that fits at each length alone may not fit at all lengths together, nor while it validates.
    let needed = needed.max(Bytes(budget.0 + 1));
    let missing = Bytes(needed.0 - budget.0);
    let refused = None;
    Ok(PlanError::NothingFits { bucket, needed, budget, missing, refused, remedy: None, share: None, smaller: None })
}

/// Returns the micro-batch with the most `bytes` if every length is computed with the least memory that `options` allow, and
/// those bytes.
fn hardest<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    bytes: impl Fn((BatchShape, u32, Choice), StateOption) -> Result<Bytes, TraceError>,
) -> Result<(BatchShape, Bytes), TraceError> {
    let demand = model.demand();
    let state = options.states.iter().copied().min_by_key(|state| state.bits).unwrap_or(StateOption::FULL);
    let mut worst: Option<(BatchShape, Bytes)> = None;
    for &precision in &options.precisions {
        let choice = smallest_choice(options, precision, demand.blocks);
        let mut of_precision: Option<(BatchShape, Bytes)> = None;
        for &bucket in &demand.buckets {
            let micro_batch = *micro_batches(options, bucket.utterances).last().expect("there is a size");
            let peak = bytes((bucket, micro_batch, choice), state)?;
            if of_precision.is_none_or(|(_, most)| peak > most) {
                of_precision = Some((bucket.with_utterances(micro_batch), peak));
            }
        }
        if worst.is_none_or(|(_, least)| of_precision.is_some_and(|(_, peak)| peak < least)) {
            worst = of_precision;
        }
    }
    Ok(worst.expect("a demand has buckets and precisions"))
}

/// Finds the changes of `options` that make the run fit and cost the least time; `None` if nothing but a smaller model
/// fits. Changes that keep the result come first, then one change that does not or that needs host memory, then two.
fn cheapest_remedy<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: MemoryLimit,
    speed: &Speed,
) -> Result<Option<Remedy>, TraceError> {
    let wide = options.joined(&model.demand().remedies);
    let free = PlanOptions {
        remat: wide.remat.clone(),
        chunks: wide.chunks.clone(),
        micro_batch: wide.micro_batch,
        ..options.clone()
    };
    let is_faster = |precision| speed.operations(precision) > speed.operations(options.precisions[0]);
    let precisions =
        wide.precisions.iter().filter(|precision| !options.precisions.contains(precision) && is_faster(**precision));
    let with_states = |base: &PlanOptions| -> Vec<PlanOptions> {
        let new = wide.states.iter().filter(|state| !options.states.contains(state));
        new.map(|&state| PlanOptions { states: vec![state], ..base.clone() }).collect()
    };
    let low: Vec<PlanOptions> =
        precisions.map(|&precision| PlanOptions { precisions: vec![precision], ..free.clone() }).collect();
    let one = [with_states(&free), low.clone()].concat();
    let two = low.iter().flat_map(with_states).collect();
    for tier in [vec![free.clone()], one, two] {
        let mut best: Option<(Found, PlanOptions)> = None;
        for candidate in tier {
            // A precision in which the model cannot be computed is no remedy.
            let Ok(Some(found)) = search(model, &candidate, limit, speed) else { continue };
            if best.as_ref().is_none_or(|(least, _)| found.seconds < least.seconds) {
                best = Some((found, candidate));
            }
        }
        if let Some((found, candidate)) = best {
            let (found, used) = simplified(model, options, (found, candidate), (limit, speed))?;
            let slowdown = found.seconds / unlimited_seconds(model, options, speed)?;
            return Ok(Some(Remedy { changes: changes(model, options, &found, &used), slowdown }));
        }
    }
    Ok(None)
}

/// Takes back each freedom of `candidate` that `options` do not have, if the run fits without it and is about as fast.
fn simplified<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    (mut found, mut candidate): (Found, PlanOptions),
    (limit, speed): (MemoryLimit, &Speed),
) -> Result<(Found, PlanOptions), TraceError> {
    let fastest = found.seconds;
    for part in 0..3 {
        let mut simpler = candidate.clone();
        match part {
            0 => simpler.chunks.clone_from(&options.chunks),
            1 => simpler.remat.clone_from(&options.remat),
            _ => simpler.micro_batch = options.micro_batch,
        }
        if simpler == candidate {
            continue;
        }
        if let Some(still) = search(model, &simpler, limit, speed)?
            && still.seconds <= fastest * SIMPLER
        {
            (found, candidate) = (still, simpler);
        }
    }
    Ok((found, candidate))
}

/// Lists the changes from `options` to what was `found` with the options `used`.
fn changes<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    found: &Found,
    used: &PlanOptions,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let chosen = || found.candidates.iter().map(|candidate| candidate.choice);
    if used.micro_batch != options.micro_batch {
        let utterances = found.candidates.iter().map(|candidate| candidate.micro_batch).min().unwrap_or(1);
        changes.push(Change::MicroBatch { utterances });
    }
    let of = model.demand().blocks;
    if chosen().any(|choice| !options.remat.contains(&choice.remat)) {
        let blocks = chosen().map(|choice: Choice| choice.remat.count(of)).max().unwrap_or(of);
        changes.push(Change::Rematerialize { blocks, of });
    }
    if chosen().any(|choice| !options.chunks.contains(&choice.attention_chunk)) {
        let queries = chosen().map(|choice| chunk_width(choice.attention_chunk)).min().unwrap_or(u32::MAX);
        changes.push(Change::Chunk { queries });
    }
    if !options.precisions.contains(&found.precision) {
        changes.push(Change::Precision { precision: found.precision });
    }
    if !options.states.contains(&found.state) {
        changes.extend(match found.state.form {
            StateForm::Full => None,
            StateForm::Eight => Some(Change::EightBitOptimizer),
            StateForm::Host => Some(Change::HostOptimizer),
        });
    }
    changes
}
