//! Names of operations in a timeline.

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{BaseOperationIr, FloatOperationIr, ModuleOperationIr, NumericOperationIr, OperationIr};

/// Returns the name under which a timeline shows `operation`.
pub(crate) fn operation_name(operation: &OperationIr) -> &'static str {
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => base_name(base),
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => numeric_name(numeric),
        OperationIr::Float(_, float) => float_name(float),
        OperationIr::Module(module) => module_name(module),
        OperationIr::Activation(_) => "activation",
        OperationIr::Bool(_) | OperationIr::Int(_) => "mask",
        OperationIr::Init(_) => "upload",
        OperationIr::Custom(_) => custom_name(operation),
        OperationIr::Drop(_) | OperationIr::Distributed(_) => "other",
    }
}

fn base_name(base: &BaseOperationIr) -> &'static str {
    match base {
        BaseOperationIr::Reshape(_) => "reshape",
        BaseOperationIr::Cat(_) => "concatenation",
        BaseOperationIr::SliceAssign(_) => "slice assignment",
        BaseOperationIr::Cast(_) => "cast",
        BaseOperationIr::MaskFill(_) | BaseOperationIr::MaskWhere(_) => "masking",
        BaseOperationIr::Zeros(_) | BaseOperationIr::Ones(_) | BaseOperationIr::Empty(_) => "fill",
        BaseOperationIr::Gather(_) | BaseOperationIr::Select(_) => "selection",
        BaseOperationIr::Scatter(_) | BaseOperationIr::SelectAssign(_) => "scatter",
        _ => "rearrangement",
    }
}

fn numeric_name(numeric: &NumericOperationIr) -> &'static str {
    match numeric {
        NumericOperationIr::Add(_) | NumericOperationIr::AddScalar(_) => "addition",
        NumericOperationIr::Sub(_) | NumericOperationIr::SubScalar(_) => "subtraction",
        NumericOperationIr::Mul(_) | NumericOperationIr::MulScalar(_) => "multiplication",
        NumericOperationIr::Div(_) | NumericOperationIr::DivScalar(_) => "division",
        NumericOperationIr::SumDim(_) | NumericOperationIr::SumDims(_) | NumericOperationIr::Sum(_) => "sum",
        NumericOperationIr::MeanDim(_) | NumericOperationIr::Mean(_) => "mean",
        _ => "arithmetic",
    }
}

fn float_name(float: &FloatOperationIr) -> &'static str {
    match float {
        FloatOperationIr::Matmul(_) => "matrix product",
        FloatOperationIr::Random(_) => "initial values",
        _ => "function",
    }
}

fn module_name(module: &ModuleOperationIr) -> &'static str {
    match module {
        ModuleOperationIr::Conv1d(_) | ModuleOperationIr::Conv2d(_) => "convolution",
        ModuleOperationIr::Conv1dXBackward(_) | ModuleOperationIr::Conv2dXBackward(_) => "convolution, input gradient",
        ModuleOperationIr::Conv1dWeightBackward(_) | ModuleOperationIr::Conv2dWeightBackward(_) => {
            "convolution, weight gradient"
        }
        ModuleOperationIr::Embedding(_) | ModuleOperationIr::EmbeddingBackward(_) => "embedding",
        _ => "layer",
    }
}

fn custom_name(operation: &OperationIr) -> &'static str {
    const NAMES: &[&str] = &[
        "alignment",
        "attention",
        "attention_weights",
        "convolution",
        "convolution gradient",
        "cross_entropy",
        "ctc",
        "depthwise",
        "epilogue",
        "dropout",
        "glu",
        "heads",
        "layer_norm",
        "overlap_add",
        "piece of a convolution",
        "relative_shift",
        "silu",
        "tanh",
        "windows",
    ];
    match CustomOp::parse(operation) {
        Some(CustomOp::Contiguous) => "contiguous copy",
        Some(CustomOp::Parts) => "parts",
        Some(CustomOp::Upload) => "upload",
        Some(CustomOp::Make(name) | CustomOp::Change { name, .. } | CustomOp::Scratch { name, .. }) => {
            let name = name.strip_suffix(CustomOp::WITH_SUMS).unwrap_or(name);
            NAMES.iter().find(|known| **known == name).copied().unwrap_or("other host operation")
        }
        _ => "custom operation",
    }
}
