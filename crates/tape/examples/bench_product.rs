//! Measures the speed of matrix products on the CPU, in the shapes of a speech recognizer: `cargo xtask bench product`.

use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};

fn main() {
    let device = Device::flex();
    println!("products of [m, k] and [k, n] in fp32, best of 30");
    for [m, k, n] in
        [[796, 256, 1024], [796, 1024, 256], [398, 256, 1024], [256, 796, 1024], [199, 64, 199], [1024, 1024, 1024]]
    {
        let a = Tensor::<2>::random([m, k], Distribution::Default, &device);
        let b = Tensor::<2>::random([k, n], Distribution::Default, &device);
        let time = |product: &dyn Fn() -> Tensor<2>| {
            let once = || {
                let start = Instant::now();
                let _ = product().sum();
                start.elapsed().as_secs_f64()
            };
            (0..30).map(|_| once()).fold(f64::INFINITY, f64::min)
        };
        let right = time(&|| a.clone().matmul(b.clone()));
        let transposed = time(&|| a.clone().matmul(b.clone().transpose().reshape([n, k]).transpose()));
        let work = 2.0 * m as f64 * k as f64 * n as f64 / 1e9;
        println!(
            "[{m}, {k}, {n}]: {:.0} GFLOP/s, right side transposed {:.0} GFLOP/s",
            work / right,
            work / transposed
        );
    }
}
