//! The reason why a value is missing, from an error of NVML.

use nvml_wrapper::error::NvmlError;

use super::reading::Missing;

/// Codes of NVML that `nvml-wrapper` 0.13 has no names for.
const DEPRECATED: u32 = 26;
const GPU_NOT_FOUND: u32 = 28;

/// Returns the reason why a value is missing. A function that the driver does not have, or has no longer, is a value
/// that the driver does not have.
pub(super) fn why_missing(error: &NvmlError) -> Missing {
    match error {
        NvmlError::NotSupported
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::UnexpectedVariant(DEPRECATED) => Missing::NotSupported,
        NvmlError::NoPermission | NvmlError::OperatingSystem => Missing::NoPermission,
        NvmlError::GpuLost
        | NvmlError::ResetRequired
        | NvmlError::DriverNotLoaded
        | NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => Missing::Lost,
        _ => Missing::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_reason() {
        let expected = |code| match code {
            3 | 13 | 26 => Missing::NotSupported,
            4 | 17 => Missing::NoPermission,
            9 | 15 | 16 | 28 => Missing::Lost,
            _ => Missing::Failed,
        };
        for code in (1..40).chain([999, u32::MAX]) {
            assert_eq!(why_missing(&NvmlError::from(code)), expected(code), "{code}");
        }
    }
}
