//! Tests of every rule in every form: definition, resuming, conversion, training, errors.

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, TensorData};
use plimsoll_core::Key;
use plimsoll_tape::{backward, collect, initialize};

use super::*;

const FORMS: [StateForm; 3] = [StateForm::Full, StateForm::Eight, StateForm::Host];

/// Returns every optimizer rule with a suitable learning rate.
fn rules() -> [(OptimizerConfig, f64); 3] {
    let sgd = SgdConfig { momentum: 0.9, nesterov: true, weight_decay: 1e-4 };
    [(AdamWConfig::default().into(), 1e-2), (LionConfig::default().into(), 2e-3), (sgd.into(), 5e-2)]
}

#[derive(Module, Debug)]
struct Point {
    place: Param<Tensor<1>>,
    /// A parameter that the loss does not use.
    idle: Param<Tensor<1>>,
}

fn point(place: Vec<f32>) -> Point {
    point_on(&Device::flex(), place)
}

fn point_on(device: &Device, place: Vec<f32>) -> Point {
    let device = device.clone().autodiff();
    let count = place.len();
    let place = Param::from_data(TensorData::new(place, [count]), &device);
    Point { place, idle: Param::from_data([3.0, 4.0], &device) }
}

fn step_once(optimizer: &mut Optimizer, point: Point, rate: f64, gradient: Vec<f32>, scale: f64) -> Point {
    let count = gradient.len();
    let slope = Tensor::<1>::from_data(TensorData::new(gradient, [count]), &point.place.val().device());
    let gradients = backward((point.place.val() * slope).sum(), &point);
    optimizer.step(rate, point, gradients, scale)
}

/// Checks that ten steps at a rate of 0.1 end at the value that `by_hand` computes from the start and the gradients.
pub(super) fn check_definition(config: impl Into<OptimizerConfig>, by_hand: impl Fn(f64, &[f64]) -> f64) {
    let starts = [1.0, -2.0];
    let slope = |start: f64, step: i32| start * (1.3 - 0.37 * f64::from(step)).sin() + 0.2;
    let mut optimizer = Optimizer::new(config.into(), StateForm::Full);
    let mut point = point(starts.map(|x| x as f32).to_vec());
    for step in 0..10 {
        // Twice the gradient, at half the scale.
        let gradient = starts.map(|start| 2.0 * slope(start, step) as f32).to_vec();
        point = step_once(&mut optimizer, point, 0.1, gradient, 0.5);
    }
    for (start, value) in starts.into_iter().zip(&collect(&point)[0].values) {
        let wanted = by_hand(start, &(0..10).map(|step| slope(start, step)).collect::<Vec<_>>());
        assert!((f64::from(*value) - wanted).abs() < 1e-5, "{value} and not {wanted}");
    }
    assert_eq!(optimizer.steps(), 10);
    assert_eq!(collect(&point)[1].values, [3.0, 4.0]);
}

/// A model for nonlinear regression. The first weight is large enough for 8 bits and not a whole number of blocks.
#[derive(Module, Debug)]
struct Net {
    wide: Linear,
    narrow: Linear,
}

fn net(seed: u64) -> Net {
    let device = Device::flex().autodiff();
    let (wide, narrow) = (LinearConfig::new(33, 65), LinearConfig::new(65, 8));
    initialize(Net { wide: wide.init(&device), narrow: narrow.init(&device) }, Key::new(seed))
}

impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.narrow.forward(self.wide.forward(x).tanh())
    }
}

/// Regression data: outputs of another net for random inputs, with noise.
struct RegressionData {
    x: Tensor<2>,
    y: Tensor<2>,
}

const SAMPLES: usize = 512;
const BATCH: usize = 32;

impl RegressionData {
    fn new() -> Self {
        let device = Device::flex().autodiff();
        let random = |key: Key, width: usize| {
            let values = (0..SAMPLES * width).map(|i| (key.at(i as u64).unit() * 4.0 - 2.0) as f32).collect();
            Tensor::<2>::from_data(TensorData::new(values, [SAMPLES, width]), &device)
        };
        let x = random(Key::new(1), 33);
        let y = (net(2).forward(x.clone()) * 3.0 + random(Key::new(3), 8) * 0.3).detach();
        Self { x, y }
    }

    /// Trains `net` up to step `last` of `total`, with a rate that falls from `rate` to zero.
    fn train(&self, optimizer: &mut Optimizer, mut net: Net, rate: f64, last: u64, total: u64) -> Net {
        while optimizer.steps() < last {
            let start = optimizer.steps() as usize * BATCH % SAMPLES;
            let of_batch = |all: &Tensor<2>| all.clone().narrow(0, start, BATCH);
            let loss = (net.forward(of_batch(&self.x)) - of_batch(&self.y)).square().mean();
            let gradients = backward(loss, &net);
            let rate = rate * (1.0 - optimizer.steps() as f64 / total as f64);
            net = optimizer.step(rate, net, gradients, 1.0);
        }
        net
    }

    fn loss(&self, net: &Net) -> f64 {
        (net.forward(self.x.clone()) - self.y.clone()).square().mean().into_scalar::<f32>().into()
    }
}

#[test]
fn a_restored_state_continues_to_the_last_bit() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        for form in FORMS {
            let mut first = Optimizer::new(config, form);
            let half = data.train(&mut first, net(4), rate, 5, 10);
            let mut second = Optimizer::new(config, form);
            second.restore(first.steps(), first.state().unwrap(), &half).unwrap();
            assert_eq!(second.state().unwrap(), first.state().unwrap(), "{config:?} {form:?}");
            let on = data.train(&mut first, half.clone(), rate, 10, 10);
            let resumed = data.train(&mut second, half, rate, 10, 10);
            assert_eq!(collect(&on), collect(&resumed), "{config:?} {form:?}");
            assert_eq!(second.state().unwrap(), first.state().unwrap(), "{config:?} {form:?}");
        }
    }
}

#[test]
fn host_state_gives_the_same_bits_as_device_state() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        let run = |forms: [StateForm; 3]| {
            let mut optimizer = Optimizer::new(config, forms[0]);
            let mut net = net(4);
            for (last, form) in [4, 8, 12].into_iter().zip(forms) {
                optimizer.set_form(form).unwrap();
                net = data.train(&mut optimizer, net, rate, last, 12);
            }
            (collect(&net), optimizer.state().unwrap())
        };
        let full = run([StateForm::Full; 3]);
        assert_eq!(full, run([StateForm::Host; 3]), "{config:?}");
        assert_eq!(full, run([StateForm::Full, StateForm::Host, StateForm::Full]), "{config:?}");
    }
}

#[test]
fn eight_bit_state_trains_as_well_as_fp32() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        let run = |first, then| {
            let mut optimizer = Optimizer::new(config, first);
            let half = data.train(&mut optimizer, net(4), rate, 300, 600);
            optimizer.set_form(then).unwrap();
            data.loss(&data.train(&mut optimizer, half, rate, 600, 600))
        };
        let (start, full) = (data.loss(&net(4)), run(StateForm::Full, StateForm::Full));
        let eight = run(StateForm::Eight, StateForm::Eight);
        let changed = run(StateForm::Full, StateForm::Eight);
        println!(
            "{config:?}: {start:.4}, in fp32 {full:.5}, in 8 bits {:.4}, changed {:.4}",
            eight / full,
            changed / full
        );
        assert!(full < 0.3 * start, "{full} of {start}");
        assert!((eight / full - 1.0).abs() < 0.01 && (changed / full - 1.0).abs() < 0.01, "{eight} {changed} {full}");
    }
}

#[test]
fn eight_bit_state_reaches_the_same_loss_on_a_noisy_quadratic() {
    for (config, rate) in rules() {
        let loss = |form| {
            let mut optimizer = Optimizer::new(config, form);
            let mut point = point(vec![0.0; 2048]);
            // The axes differ by four magnitudes, and each step has other noise.
            let axis = |i: usize| 10f64.powf(-4.0 * Key::new(6).at(i as u64).unit());
            let floor = |i: usize| Key::new(7).at(i as u64).unit() * 2.0 - 1.0;
            for step in 0..400 {
                let noise = |i: usize| Key::new(8).at(step).at(i as u64).unit() - 0.5;
                let place = &collect(&point)[0].values;
                let slope = |i: usize| ((f64::from(place[i]) - floor(i) + noise(i)) * axis(i)) as f32;
                let gradient = (0..2048).map(slope).collect();
                point = step_once(&mut optimizer, point, rate * (1.0 - step as f64 / 400.0), gradient, 1.0);
            }
            let place = &collect(&point)[0].values;
            // The variance of uniform noise over an interval of 1 is 1/12, a lower bound of the loss.
            (0..2048).map(|i| ((f64::from(place[i]) - floor(i)).powi(2) + 1.0 / 12.0) * axis(i)).sum::<f64>()
        };
        let (full, eight) = (loss(StateForm::Full), loss(StateForm::Eight));
        println!("{config:?}: {:.4} of {full:.3}", eight / full);
        assert!((eight / full - 1.0).abs() < 0.01, "{config:?}: {eight} and not {full}");
    }
}

#[test]
fn state_bytes_match_the_tensors() {
    let data = RegressionData::new();
    for (config, parts) in rules().map(|(config, _)| config).into_iter().zip([2, 1, 1]) {
        // Weights of 2145 and 520 values, biases of 65 and 8.
        for (form, wanted) in [(StateForm::Full, 4 * 2738), (StateForm::Eight, 9 * 260 + 4 * 593)] {
            let mut optimizer = Optimizer::new(config, form);
            data.train(&mut optimizer, net(4), 1e-3, 1, 1);
            assert_eq!(optimizer.bytes(), Bytes(parts * wanted), "{config:?} {form:?}");
            let bytes = [2145, 520, 65, 8].map(|values| config.state_bytes(form, values).0);
            assert_eq!(bytes.into_iter().sum::<u64>(), parts * wanted);
            optimizer.set_form(StateForm::Host).unwrap();
            assert_eq!(optimizer.bytes(), Bytes(parts * 4 * 2738));
        }
    }
    let bits = |config: OptimizerConfig| FORMS.map(|form| config.state_bits(form));
    // A block of 8-bit values has its scale beside it.
    assert_eq!(rules().map(|(config, _)| bits(config)), [[64, 17, 0], [32, 9, 0], [32, 9, 0]]);
    assert_eq!(bits(SgdConfig::default().into()), [0, 0, 0]);
}

#[test]
fn a_state_of_another_form_is_converted() {
    let data = RegressionData::new();
    let config = AdamWConfig::default().into();
    let mut full = Optimizer::new(config, StateForm::Full);
    let net = data.train(&mut full, net(4), 1e-2, 5, 10);
    let mut eight = Optimizer::new(config, StateForm::Eight);
    eight.restore(5, full.state().unwrap(), &net).unwrap();
    full.set_form(StateForm::Eight).unwrap();
    assert_eq!(eight.state().unwrap(), full.state().unwrap());
    let mut back = Optimizer::new(config, StateForm::Host);
    back.restore(5, eight.state().unwrap(), &net).unwrap();
    full.set_form(StateForm::Host).unwrap();
    assert_eq!(back.state().unwrap(), full.state().unwrap());
}

#[test]
fn a_parameter_without_gradients_has_state_and_does_not_move() {
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), StateForm::Full);
    let point = step_once(&mut optimizer, point(vec![1.0]), 0.1, vec![1.0], 1.0);
    let names: Vec<String> = optimizer.state().unwrap().into_iter().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["idle.mean", "idle.square", "place.mean", "place.square"]);
    assert_eq!(collect(&point)[1].values, [3.0, 4.0]);
    assert_eq!(Optimizer::new(OptimizerConfig::default(), StateForm::Full).restore(0, Vec::new(), &point), Ok(()));
}

#[test]
fn restore_refuses_foreign_state_by_name() {
    let data = RegressionData::new();
    let state_of = |config: OptimizerConfig, form| {
        let mut optimizer = Optimizer::new(config, form);
        data.train(&mut optimizer, net(4), 1e-3, 1, 1);
        optimizer.state().unwrap()
    };
    let [(adam, _), (lion, _), (sgd, _)] = rules();
    let one = StateTensor { name: String::new(), shape: vec![1], data: StateData::F32(vec![1.0]) };
    let refused = |state: Vec<StateTensor>| {
        let mut optimizer = Optimizer::new(adam, StateForm::Full);
        let error = optimizer.restore(1, state, &net(4)).unwrap_err().to_string();
        assert_eq!((optimizer.steps(), optimizer.state().unwrap()), (0, Vec::new()));
        error
    };
    let changed = |form, name: &str, change: &dyn Fn(&mut StateTensor)| {
        let mut state = state_of(adam, form);
        change(state.iter_mut().find(|tensor| tensor.name == name).unwrap());
        refused(state)
    };
    let (full, eight) = (StateForm::Full, StateForm::Eight);
    let other = "it belongs to another model or optimizer";
    let others = "which this model and optimizer do not: it belongs to others";
    for (error, wanted) in [
        (refused(Vec::new()), format!("the optimizer's state has no `wide.weight.mean`: {other}")),
        (refused(state_of(lion, full)), format!("the optimizer's state has no `wide.weight.square`: {other}")),
        (refused(state_of(sgd, full)), format!("the optimizer's state has no `wide.weight.mean`: {other}")),
        (
            changed(full, "wide.weight.square", &|tensor| tensor.name = "more".into()),
            format!("the optimizer's state has no `wide.weight.square`: {other}"),
        ),
        (
            changed(eight, "wide.weight.mean.scales", &|tensor| tensor.name = "more".into()),
            format!("the optimizer's state has no `wide.weight.mean.scales`: {other}"),
        ),
        (
            refused([state_of(adam, full), vec![StateTensor { name: "more".into(), ..one }]].concat()),
            format!("the optimizer's state has `more`, {others}"),
        ),
        (
            changed(full, "narrow.bias.mean", &|tensor| tensor.shape = vec![9]),
            "`narrow.bias.mean` has shape [9] in the optimizer's state, and this model needs [8]".into(),
        ),
        (
            changed(eight, "wide.weight.mean.codes", &|tensor| tensor.shape = vec![512]),
            "`wide.weight.mean.codes` has shape [512] in the optimizer's state, and this model needs [576]".into(),
        ),
        (
            changed(full, "narrow.bias.mean", &|tensor| tensor.data = StateData::I32(vec![0; 8])),
            "`narrow.bias.mean` holds integers in the optimizer's state, and floats are needed".into(),
        ),
    ] {
        assert_eq!(error, wanted);
    }
}

#[test]
fn config_refuses_unknown_keys() {
    let text = r#"{"kind":"lion","beta_1":0.9,"beta_2":0.99,"weight_decay":0.0}"#;
    let lion: OptimizerConfig = LionConfig::default().into();
    assert_eq!(serde_json::to_string(&lion).unwrap(), text);
    assert_eq!(serde_json::from_str::<OptimizerConfig>(text).unwrap(), lion);
    for wrong in [text.replace("lion", "adam"), text.replace("beta_2", "beta2"), text.replace("}", r#","more":1}"#)] {
        assert!(serde_json::from_str::<OptimizerConfig>(&wrong).is_err(), "{wrong}");
    }
    assert_eq!(serde_json::to_string(&FORMS).unwrap(), r#"["full","eight","host"]"#);
}

/// Lays out the parameters in flat tensors, as on a GPU.
fn flat(config: OptimizerConfig, form: StateForm, net: &impl Module) -> Optimizer {
    let mut optimizer = Optimizer::new(config, form);
    optimizer.flat = Some(FlatState::new(net, (form, &Rates::default()), config.parts(), &BTreeMap::new()));
    optimizer
}

/// A part with a factor moves as if the whole model had that learning rate, and the others as they do without it.
#[test]
fn parts_have_learning_rates_of_their_own() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        for form in FORMS {
            let once = |mut optimizer: Optimizer, rate| collect(&data.train(&mut optimizer, net(4), rate, 1, 20));
            let new = || Optimizer::new(config, form);
            let (fast, slow) = (once(new(), rate), once(new(), rate * 0.25));
            let rates = Rates::new([("wide".into(), 3.0), ("narrow".into(), 1.0), ("wide.weight".into(), 0.25)]);
            let each = new().with_rates(rates.clone());
            let mut all = new().with_rates(rates.clone());
            all.flat = Some(FlatState::new(&net(4), (form, &rates), config.parts(), &BTreeMap::new()));
            for optimizer in [each, all] {
                for (index, found) in once(optimizer, rate).iter().enumerate() {
                    match &*found.name {
                        "wide.weight" => assert_eq!(found, &slow[index], "{config:?} {form:?}"),
                        "wide.bias" => assert_ne!(found, &fast[index], "{config:?} {form:?}"),
                        _ => assert_eq!(found, &fast[index], "{config:?} {form:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn flat_tensors_change_no_bit() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        for form in FORMS {
            let (mut each, mut all) = (Optimizer::new(config, form), flat(config, form, &net(4)));
            let (of_each, of_all) =
                (data.train(&mut each, net(4), rate, 7, 20), data.train(&mut all, net(4), rate, 7, 20));
            assert_eq!(collect(&of_all), collect(&of_each), "{config:?} {form:?}");
            let sorted = |optimizer: &Optimizer| {
                let mut state = optimizer.state().unwrap();
                state.sort_by(|a, b| a.name.cmp(&b.name));
                state
            };
            assert_eq!(sorted(&all), sorted(&each), "{config:?} {form:?}");
            // Each continues from the checkpoint of the other.
            let (mut each_again, mut all_again) = (Optimizer::new(config, form), flat(config, form, &net(4)));
            each_again.restore(7, all.state().unwrap(), &of_all).unwrap();
            all_again.restore(7, each.state().unwrap(), &of_each).unwrap();
            let ends = [each_again, all_again, each, all].map(|mut optimizer| {
                let end = data.train(&mut optimizer, of_each.clone(), rate, 20, 20);
                (collect(&end), sorted(&optimizer))
            });
            assert!(ends.iter().all(|end| *end == ends[0]), "{config:?} {form:?}");
        }
    }
}

#[test]
fn parameters_without_a_gradient_stay_in_flat_tensors_too() {
    for (config, rate) in rules() {
        for form in FORMS {
            let run = |mut optimizer: Optimizer| {
                let mut point = point(vec![1.0; 1500]);
                for step in 0..4 {
                    point = step_once(&mut optimizer, point, rate, vec![0.1 * f32::from(step as u8); 1500], 1.0);
                }
                let mut state = optimizer.state().unwrap();
                state.sort_by(|a, b| a.name.cmp(&b.name));
                (collect(&point), state)
            };
            let each = run(Optimizer::new(config, form));
            assert_eq!(run(flat(config, form, &point(vec![1.0; 1500]))), each, "{config:?} {form:?}");
            assert_eq!(each.0[1].values, [3.0, 4.0]);
        }
    }
}

#[test]
fn parameters_that_are_trained_later_move_in_flat_tensors_too() {
    let data = RegressionData::new();
    for (config, rate) in rules() {
        for form in FORMS {
            let frozen = || {
                let net = net(4);
                Net { wide: net.wide.no_grad(), ..net }
            };
            let run = |mut optimizer: Optimizer| {
                let narrow_alone = data.train(&mut optimizer, frozen(), rate, 4, 20);
                let wide = narrow_alone.wide.clone().map(&mut Trained);
                collect(&data.train(&mut optimizer, Net { wide, ..narrow_alone }, rate, 9, 20))
            };
            let each = run(Optimizer::new(config, form));
            assert_eq!(run(flat(config, form, &frozen())), each, "{config:?} {form:?}");
            assert_ne!(each[0].values, collect(&net(4))[0].values);
        }
    }
}

struct Trained;

impl ModuleMapper for Trained {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| value.detach().set_require_grad(true))
    }
}

#[test]
fn flat_state_moves_to_the_host_and_back() {
    let data = RegressionData::new();
    let config = OptimizerConfig::default();
    let (mut moved, mut stayed) = (flat(config, StateForm::Full, &net(4)), flat(config, StateForm::Full, &net(4)));
    let (mut a, mut b) = (net(4), net(4));
    for (last, form) in [(3, StateForm::Host), (6, StateForm::Full), (9, StateForm::Host)] {
        (a, b) = (data.train(&mut moved, a, 1e-2, last, 20), data.train(&mut stayed, b, 1e-2, last, 20));
        moved.set_form(form).unwrap();
        assert_eq!(moved.form(), form);
        assert_eq!(moved.state().unwrap(), stayed.state().unwrap());
    }
    assert_eq!(collect(&a), collect(&b));
}

/// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
#[cfg(feature = "wgpu")]
#[test]
fn a_gpu_updates_as_the_cpu_does() {
    let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
    let starts: Vec<f32> = (0..1500).map(|i| Key::new(8).at(i).unit() as f32 - 0.5).collect();
    for (config, rate) in rules() {
        for form in FORMS {
            let run = |device: &Device| {
                let mut optimizer = Optimizer::new(config, form);
                let mut point = point_on(device, starts.clone());
                let before = point.clone();
                for step in 0..6 {
                    let gradient = starts.iter().map(|x| x * (f32::from(step as u8) + 0.3).sin()).collect();
                    point = step_once(&mut optimizer, point, rate, gradient, 0.5);
                    if step == 3 {
                        // A resumed run.
                        let state = optimizer.state().unwrap();
                        optimizer = Optimizer::new(config, form);
                        optimizer.restore(4, state, &point).unwrap();
                    }
                }
                assert_eq!(collect(&before)[0].values, starts, "a module from before the steps keeps its weights");
                assert_eq!(optimizer.flat.is_some(), !plimsoll_tape::is_host_device(device));
                collect(&point)
            };
            let (found, wanted) = (run(&gpu), run(&Device::flex()));
            assert_eq!(found[1].values, [3.0, 4.0]);
            // A value in 8 bits may come to the next code.
            let most = if form == StateForm::Eight { 0.1 * rate } else { 1e-5 };
            for (found, wanted) in found[0].values.iter().zip(&wanted[0].values) {
                assert!(f64::from((found - wanted).abs()) < most, "{config:?} {form:?}: {found} and not {wanted}");
            }
        }
    }
}
