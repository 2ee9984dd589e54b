//! The readings of a sample that are numbers, each with its name and unit.

use std::fmt;

use plimsoll_core::Bytes;
use serde::{Deserialize, Serialize};

use super::reading::{Missing, Reading};
use super::{GpuSample, HostSample};

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NumberUnit {
    /// Part of a whole, from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// MHz.
    Megahertz,
    /// Processors.
    Cpus,
    /// Number of events.
    Count,
}

impl NumberUnit {
    /// Writes `value` with this unit for people.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Bytes => Bytes(value as u64).to_string(),
            Self::BytesPerSecond => format!("{}/s", Bytes(value as u64)),
            Self::Watts => format!("{value:.0} W"),
            Self::Celsius => format!("{value:.0} °C"),
            Self::Megahertz => format!("{value:.0} MHz"),
            Self::Cpus => format!("{value:.2}"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// One number of a sample: its name, its unit and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberReading {
    /// Name of the field, such as `sm_active`.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: NumberUnit,
    /// Value, or the reason why it is missing.
    pub value: Result<f64, Missing>,
}

impl NumberReading {
    fn new<T: Number>(name: &'static str, unit: NumberUnit, reading: &Reading<T>) -> Self {
        let value = reading.value().map(Number::number).filter(|value| value.is_finite());
        Self { name, unit, value: value.ok_or_else(|| reading.why_missing().unwrap_or(Missing::Failed)) }
    }
}

impl fmt::Display for NumberReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Ok(value) => f.pad(&self.unit.format(value)),
            Err(why) => why.fmt(f),
        }
    }
}

trait Number {
    fn number(&self) -> f64;
}

impl Number for f64 {
    fn number(&self) -> f64 {
        *self
    }
}

impl Number for u64 {
    fn number(&self) -> f64 {
        *self as f64
    }
}

impl Number for Bytes {
    fn number(&self) -> f64 {
        self.0 as f64
    }
}

/// Lists fields of a sample with their names.
macro_rules! numbers {
    ($sample:expr, $($field:ident: $unit:ident),+ $(,)?) => {
        vec![$(NumberReading::new(stringify!($field), NumberUnit::$unit, &$sample.$field)),+]
    };
}

impl HostSample {
    /// Returns all readings that are numbers, always in the same order.
    pub fn numbers(&self) -> Vec<NumberReading> {
        numbers!(
            self,
            cpu: Share,
            own_cpus: Cpus,
            other_cpus: Cpus,
            cpus: Cpus,
            memory_total: Bytes,
            memory_available: Bytes,
            own_memory: Bytes,
            disk_read: BytesPerSecond,
            disk_written: BytesPerSecond,
        )
    }
}

impl GpuSample {
    /// Returns all readings that are numbers, always in the same order.
    pub fn numbers(&self) -> Vec<NumberReading> {
        numbers!(
            self,
            utilization: Share,
            memory_utilization: Share,
            sm_active: Share,
            tensor_active: Share,
            dram_active: Share,
            memory_total: Bytes,
            memory_used: Bytes,
            memory_free: Bytes,
            power: Watts,
            power_limit: Watts,
            temperature: Celsius,
            sm_clock: Megahertz,
            sm_clock_max: Megahertz,
            pcie_received: BytesPerSecond,
            pcie_sent: BytesPerSecond,
            ecc_errors: Count,
        )
    }
}
