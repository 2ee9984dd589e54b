//! Measurements of kernels.

#[cfg(feature = "cube")]
pub(super) use cube::Timings;

/// Time that the kernels of one name took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// Name of the kernel, as its backend writes it.
    pub name: String,
    /// Number of launches that were timed.
    pub count: u64,
    /// Seconds of all of them.
    pub seconds: f64,
    /// Number of launches that the device could not time. Their seconds are those of the host, from before the launch
    /// to the end of the kernel.
    pub by_host: u64,
}

#[cfg(feature = "cube")]
mod cube {
    use std::collections::HashMap;
    use std::fmt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use cubecl_server::config::{TypeNameFormatLevel, type_name_format};
    use cubecl_server::logging::{Duration, ProfileDuration, TimingMethod};
    use futures_lite::future::block_on;

    use super::KernelTime;

    /// Measurements of kernels.
    #[derive(Default)]
    pub(in crate::gpu) struct Timings(Mutex<Kept>);

    #[derive(Default)]
    struct Kept {
        /// Measurements that are not read.
        unread: Vec<(&'static str, ProfileDuration)>,
        times: HashMap<&'static str, KernelTime>,
    }

    impl Timings {
        fn lock(&self) -> MutexGuard<'_, Kept> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(in crate::gpu) fn keep(&self, kernel: &'static str, profile: ProfileDuration) {
            self.lock().unread.push((kernel, profile));
        }

        pub(in crate::gpu) fn add(&self, kernel: &'static str, duration: Duration, method: TimingMethod) {
            let mut kept = self.lock();
            let time = kept.times.entry(kernel).or_default();
            time.count += 1;
            time.seconds += duration.as_secs_f64();
            time.by_host += u64::from(method == TimingMethod::System);
        }

        pub(in crate::gpu) fn read(&self) {
            let unread = std::mem::take(&mut self.lock().unread);
            for (kernel, profile) in unread {
                let method = profile.timing_method();
                // Without ticks the device has no measurement.
                if let Some(ticks) = block_on(profile.resolve()) {
                    self.add(kernel, ticks.duration(), method);
                }
            }
        }

        pub(in crate::gpu) fn finish(&self) -> Vec<KernelTime> {
            self.read();
            let named = |(name, time): (&str, KernelTime)| KernelTime {
                name: type_name_format(name, TypeNameFormatLevel::Balanced),
                ..time
            };
            let mut times: Vec<KernelTime> = std::mem::take(&mut self.lock().times).into_iter().map(named).collect();
            times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
            times
        }
    }

    impl fmt::Debug for Timings {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let kept = self.lock();
            write!(f, "Timings({} unread, {} kernels)", kept.unread.len(), kept.times.len())
        }
    }
}
