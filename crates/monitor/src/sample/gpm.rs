//! Reads the counters of a GPU that are averages over a period (GPM): they compare two moments.

use std::time::Duration;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::struct_wrappers::gpm::GpmMetricResult;
use nvml_wrapper::{Device, GpmSample, Nvml};

use super::nvml_error::why_missing;
use super::reading::{Missing, Origin, Reading};

/// Shortest period between two moments: `nvml.h` asks for at least 100 ms.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// Throughput of PCIe comes in MiB a second, as `nvml.h` says. The documentation of `nvml-wrapper` says bytes.
const PCIE_UNIT: f64 = 1_048_576.0;

const METRICS: [GpmMetricId; 5] = [
    GpmMetricId::SmUtil,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
];

/// Values of the counters over the last period.
#[derive(Clone)]
pub(super) struct GpmReadings {
    pub(super) sm_active: Reading<f64>,
    pub(super) tensor_active: Reading<f64>,
    pub(super) dram_active: Reading<f64>,
    pub(super) pcie_received: Reading<f64>,
    pub(super) pcie_sent: Reading<f64>,
}

/// Reader of one GPU that keeps the moment before.
#[derive(Default)]
pub(super) struct GpmReader {
    /// Whether the GPU has the counters; `None` until it has answered.
    supported: Option<bool>,
    before: Option<(Duration, GpmSample<'static>)>,
    /// Values of the last period.
    last: Option<GpmReadings>,
}

impl GpmReadings {
    fn missing(why: Missing) -> Self {
        Self::from_values(std::array::from_fn(|_| Err(why)))
    }

    fn from_values(values: [Result<f64, Missing>; 5]) -> Self {
        let [sm_active, tensor_active, dram_active, pcie_received, pcie_sent] =
            values.map(|value| Reading::from_result(value, Origin::Gpm));
        Self { sm_active, tensor_active, dram_active, pcie_received, pcie_sent }
    }

    fn aged(mut self, age: Duration) -> Self {
        let Self { sm_active, tensor_active, dram_active, pcie_received, pcie_sent } = &mut self;
        for reading in [sm_active, tensor_active, dram_active, pcie_received, pcie_sent] {
            reading.age_seconds = age.as_secs_f64();
        }
        self
    }
}

impl GpmReader {
    /// Reads the counters over the period since the reading before. The counters of a divided GPU belong to its
    /// instances, so the GPU as a whole has none.
    pub(super) fn read(
        &mut self,
        nvml: &'static Nvml,
        device: Result<&Device<'static>, Missing>,
        is_divided: bool,
        elapsed: Duration,
    ) -> GpmReadings {
        let usable = device.and_then(|device| match is_divided {
            true => Err(Missing::NotVisible),
            false => self.check(device).map(|()| device),
        });
        match usable.and_then(|device| self.read_period(nvml, device, elapsed)) {
            Ok(readings) => readings,
            Err(why) => {
                if why != Missing::NeedsTwoReadings {
                    (self.before, self.last) = (None, None);
                }
                GpmReadings::missing(why)
            }
        }
    }

    fn check(&mut self, device: &Device<'static>) -> Result<(), Missing> {
        let supported = match self.supported {
            Some(supported) => supported,
            None => device.gpm_support().map_err(|error| why_missing(&error))?,
        };
        self.supported = Some(supported);
        if supported { Ok(()) } else { Err(Missing::NotSupported) }
    }

    fn read_period(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        elapsed: Duration,
    ) -> Result<GpmReadings, Missing> {
        let age = self.before.as_ref().map(|(at, _)| elapsed.saturating_sub(*at));
        if let Some(age) = age.filter(|age| *age < PERIOD_MIN) {
            return self.last.clone().map(|last| last.aged(age)).ok_or(Missing::NeedsTwoReadings);
        }
        let now = device.gpm_sample().map_err(|error| why_missing(&error))?;
        let before = self.before.replace((elapsed, now));
        let (Some((_, before)), Some((_, now))) = (before, &self.before) else {
            return Err(Missing::NeedsTwoReadings);
        };
        let values = gpm_metrics_get(nvml, &before, now, &METRICS).map_err(|error| why_missing(&error))?;
        let mut values = values.into_iter();
        let mut next = || values.next().unwrap_or(Err(NvmlError::NoData)).map_err(|error| why_missing(&error));
        let mut share = || next().and_then(share);
        let shares = [share(), share(), share()];
        let mut rate = || next().and_then(rate);
        let rates = [rate(), rate()];
        let [sm, tensor, dram] = shares;
        let [received, sent] = rates;
        let readings = GpmReadings::from_values([sm, tensor, dram, received, sent]);
        self.last = Some(readings.clone());
        Ok(readings)
    }
}

/// Converts percent to a share. A counter may be a little above 100 %, because its parts are read one after another.
fn share(result: GpmMetricResult) -> Result<f64, Missing> {
    match result.value {
        percent if (0.0..=110.0).contains(&percent) => Ok((percent / 100.0).min(1.0)),
        _ => Err(Missing::Failed),
    }
}

fn rate(result: GpmMetricResult) -> Result<f64, Missing> {
    match result.value {
        value if value.is_finite() && value >= 0.0 => Ok(value * PCIE_UNIT),
        _ => Err(Missing::Failed),
    }
}
