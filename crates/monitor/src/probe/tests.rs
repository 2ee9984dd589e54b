//! The probe on machines that are only told of.

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};

use super::place::Signs;
use super::*;

const HOME: Place = Place { container: false, wsl: false, own_pids: false, hides_others: false };
const HOST: Host = Host { memory: Bytes::gib(64), memory_limit: None, available: Bytes::gib(50), logical_cpus: 16 };

fn memory(total_gib: u64, free_gib: u64) -> CardMemory {
    CardMemory::new(Bytes::gib(total_gib), Bytes::mib(512), Bytes::gib(free_gib))
}

fn process(pid: u32, kind: WorkKind, memory: Option<Bytes>) -> CardProcess {
    CardProcess { pid, kind, memory }
}

/// A card with two processes, as in "process 75955 has 14.17 GiB in use".
fn shared_card() -> FakeCards {
    let mut cards = FakeCards::default()
        .card("NVIDIA GeForce RTX 4090", memory(24, 8))
        .holding(process(812, WorkKind::Graphics, Some(Bytes::mib(420))))
        .holding(process(75955, WorkKind::Both, Some(Bytes::mib(14510))));
    cards.roster.driver = Some("580.82.07".into());
    cards.roster.cuda = Some(Version { major: 13, minor: 0 });
    cards.roster.cards[0].bandwidth_per_sec = Some(Bytes(1_008_096_000_000));
    cards
}

fn two_cards() -> FakeCards {
    FakeCards::default().card("NVIDIA T4", memory(16, 15)).card("NVIDIA H200", memory(140, 139))
}

fn with_mig() -> FakeCards {
    let mut cards = FakeCards::default().card("NVIDIA H200", memory(140, 100));
    let card = &mut cards.roster.cards[0];
    card.mig = true;
    card.instances = vec!["MIG-11aa".into(), "MIG-22bb".into()];
    cards.memory.insert("MIG-11aa".into(), Ok(memory(18, 17)));
    let reason = "the current user does not have permission to perform this operation".into();
    cards.memory.insert("MIG-22bb".into(), Err(ProbeError { device: "MIG-22bb".into(), reason }));
    cards.processes.insert(cards.roster.cards[0].uuid.clone(), Err(Unseen::Driver));
    cards
}

fn environment(list: Option<&str>, order: Option<&str>) -> CudaEnvironment {
    CudaEnvironment { visible_devices: list.map(Into::into), device_order: order.map(Into::into) }
}

fn ann(pid: u32) -> Person {
    match pid {
        812 => Person { user: Ok("root".into()), command: Ok("/usr/lib/xorg/Xorg vt2".into()) },
        _ => Person { user: Ok("ann".into()), command: Ok(format!("train\u{1b}[2J --config {}", "a/".repeat(40))) },
    }
}

fn stranger(pid: u32) -> Person {
    panic!("process {pid} here is not process {pid} there, and must not be asked for");
}

fn look(place: Place, list: Option<&str>, who: fn(u32) -> Person, source: Result<&FakeCards, NoCards>) -> Machine {
    let source = source.map(|cards| cards as &dyn CardSource);
    Look { host: HOST, place, environment: environment(list, None), who: &mut { who } }.at(source)
}

#[test]
fn everything_is_known_at_home() {
    let machine = look(HOME, None, ann, Ok(&shared_card()));
    insta::assert_snapshot!("home", machine.to_string());
    insta::assert_snapshot!("home_json", serde_json::to_string_pretty(&machine).unwrap());
    let rest = Bytes::gib(24 - 8).saturating_sub(Bytes::mib(512 + 420 + 14510));
    assert_eq!(machine.cards[0].unaccounted, Some(Unaccounted { bytes: rest, exact: true }));
}

#[test]
fn a_container_names_nobody() {
    let place = Place { container: true, own_pids: true, ..HOME };
    let machine = look(place, None, stranger, Ok(&shared_card()));
    insta::assert_snapshot!("container", machine.to_string());
    let holders = machine.cards[0].holders.as_ref().unwrap();
    assert!(holders.iter().all(|holder| holder.command == Err(Unseen::Container)));
}

#[test]
fn unknown_memory_is_no_zero() {
    let place = Place { wsl: true, own_pids: true, ..HOME };
    let cards = FakeCards::default()
        .card("NVIDIA GeForce RTX 3060 Laptop GPU", memory(6, 4))
        .holding(process(7, WorkKind::Compute, None))
        .holding(process(9, WorkKind::Compute, Some(Bytes(u64::MAX - 1))))
        .holding(process(8, WorkKind::Compute, Some(Bytes::mib(512))));
    let machine = look(place, None, stranger, Ok(&cards));
    insta::assert_snapshot!("wsl", machine.to_string());
    let unaccounted = Unaccounted { bytes: Bytes::gib(1), exact: false };
    assert_eq!(machine.cards[0].unaccounted, Some(unaccounted));
    let json = serde_json::to_value(&machine).unwrap();
    let unseen = "Windows manages the card and does not tell it to WSL";
    assert_eq!(json["cards"][0]["holders"][0]["memory"]["unseen"], unseen);
}

#[test]
fn processes_that_claim_more_than_is_used_leave_nothing_and_nothing_certain() {
    let claim = process(5, WorkKind::Compute, Some(Bytes::gib(10)));
    let cards = FakeCards::default().card("NVIDIA T4", memory(16, 15)).holding(claim);
    let machine = look(HOME, None, ann, Ok(&cards));
    assert_eq!(machine.cards[0].unaccounted, Some(Unaccounted { bytes: Bytes(0), exact: false }));
}

#[test]
fn mig_and_a_lost_card_hide_nothing() {
    let mut cards = with_mig();
    cards.roster.lost.push(ProbeError { device: "card 1".into(), reason: "device fell off the bus".into() });
    insta::assert_snapshot!("mig", look(HOME, Some("MIG-11"), ann, Ok(&cards)).to_string());
}

#[test]
fn two_cards_in_an_order_that_is_a_guess() {
    insta::assert_snapshot!("two", look(HOME, Some("1"), ann, Ok(&two_cards())).to_string());
}

#[test]
fn no_card_is_one_sentence() {
    let reason = "libnvidia-ml.so.1: cannot open shared object file".into();
    let place = Place { container: true, own_pids: true, ..HOME };
    insta::assert_snapshot!("none", look(place, None, stranger, Err(NoCards::Library { reason })).to_string());
    let empty = look(HOME, None, stranger, Ok(&FakeCards::default()));
    assert_eq!(empty.no_cards, Some(NoCards::Empty));
}

#[test]
fn this_machine_can_be_probed() {
    let machine = Machine::probe();
    assert_eq!(machine.cards.is_empty() && machine.lost.is_empty(), machine.no_cards.is_some(), "{machine}");
    assert!(serde_json::to_value(&machine).unwrap()["host"]["memory"].as_u64() > Some(0));
}

#[test]
fn the_register_knows_us() {
    let place = Place::here();
    let me = Register::open(place).who(std::process::id());
    assert!(me.command.unwrap().contains("plimsoll_monitor"));
    assert!(me.user.is_ok());
    // Above the largest number that Linux gives out.
    let nobody = Register::open(Place { hides_others: false, ..place }).who(5_000_000);
    assert_eq!(nobody.command, Err(Unseen::Ended));
    let hidden = Register::open(Place { hides_others: true, ..place }).who(5_000_000);
    assert_eq!(hidden.user, Err(Unseen::Permission));
}

#[test]
fn a_handle_is_asked_for_what_is_free() {
    let cards = two_cards();
    let handle = CardHandle::open(&cards, &cards.roster.cards[1].uuid).unwrap();
    assert_eq!(handle.free(), Ok(Bytes::gib(139)));
    let cards = with_mig();
    let refusal = |uuid: &str| CardHandle::open(&cards, uuid).unwrap_err().to_string();
    let uuid = &cards.roster.cards[0].uuid;
    assert!(refusal(uuid).ends_with("MIG is on: name one of its instances in CUDA_VISIBLE_DEVICES"));
    assert_eq!(refusal("GPU-x"), "cannot read the memory of GPU-x: this machine has no such card");
    assert_eq!(CardHandle::open(&cards, "MIG-11aa").unwrap().free(), Ok(Bytes::gib(17)));
    assert!(CardHandle::open(&cards, "MIG-22bb").unwrap().free().is_err());
}

/// Three cards: `GPU-abc1`, `GPU-abd2`, and `GPU-fff3`, which is cut in two. NVML's order is not that of the bus.
fn three_cards() -> Vec<Card> {
    let cards = FakeCards::default().card("A", memory(8, 8)).card("B", memory(8, 8)).card("C", memory(8, 8));
    let mut cards = cards.roster.cards;
    for (card, uuid) in cards.iter_mut().zip(["GPU-abc1", "GPU-abd2", "GPU-fff3"]) {
        card.uuid = uuid.into();
    }
    cards[2].mig = true;
    cards[2].instances = vec!["MIG-11aa".into(), "MIG-22bb".into()];
    cards.swap(0, 1);
    cards
}

#[test]
fn cuda_visible_devices() {
    let check = |list: Option<&str>, expected: &[&str], certain: [bool; 2]| {
        for (order, certain) in [None, Some("PCI_BUS_ID")].into_iter().zip(certain) {
            let visible = environment(list, order).visible(&three_cards());
            assert_eq!(visible.uuids, expected, "{list:?}");
            assert_eq!(visible.order_is_certain, certain, "{list:?} in order {order:?}");
        }
    };
    let guess = [false, true];
    let sure = [true, true];
    let cut = [false, false];
    check(None, &["GPU-abc1", "GPU-abd2", "GPU-fff3"], cut);
    check(Some(""), &[], sure);
    check(Some("-1"), &[], sure);
    check(Some("NoDevFiles"), &[], sure);
    check(Some("none"), &[], sure);
    check(Some("0"), &["GPU-abc1"], guess);
    check(Some(" 1 , 0"), &["GPU-abd2", "GPU-abc1"], guess);
    check(Some("2"), &["GPU-fff3"], cut);
    check(Some("1,-1,0"), &["GPU-abd2"], guess);
    check(Some("1,,0"), &["GPU-abd2"], guess);
    check(Some("1,7,0"), &["GPU-abd2"], guess);
    check(Some("7,0"), &[], sure);
    check(Some("1,1"), &[], sure);
    check(Some("0,1,+0"), &[], sure);
    check(Some("1gpu0,0"), &["GPU-abd2", "GPU-abc1"], guess);
    check(Some("99999999999999999999999"), &[], sure);
    check(Some("1,GPU-abc"), &["GPU-abd2"], guess);
    check(Some("GPU-abd"), &["GPU-abd2"], sure);
    check(Some("GPU-abd2,GPU-abc1"), &["GPU-abd2", "GPU-abc1"], sure);
    check(Some("GPU-ab"), &[], sure);
    check(Some("GPU-abd,GPU-x,GPU-abc"), &["GPU-abd2"], sure);
    check(Some("GPU-abd,0"), &["GPU-abd2"], sure);
    check(Some("GPU-abd,GPU-abd2"), &[], sure);
    check(Some("GPU-fff3"), &["GPU-fff3"], cut);
    check(Some("MIG-22bb"), &["MIG-22bb"], sure);
    check(Some("MIG-22,MIG-11"), &["MIG-22bb"], sure);
    check(Some("MIG-33"), &[], sure);
    check(Some("MIG-11,MIG-11"), &[], sure);
}

#[test]
fn an_index_is_certain_where_there_is_one_card() {
    let cards = &three_cards()[..1];
    for list in [None, Some("0"), Some("1")] {
        assert!(environment(list, None).visible(cards).order_is_certain, "{list:?}");
    }
}

#[test]
fn places_are_known_by_their_signs() {
    let first = Some("pid:[4026531836]");
    let other = Some("pid:[4026532210]");
    let signs = Signs { kernel: "Linux version 6.8.0-45-generic", first_group: "0::/init.scope", ..Signs::default() };
    let container = Place { container: true, ..HOME };
    let check = |signs: Signs<'_>, expected: Place| assert_eq!(Place::of(&signs), expected, "{signs:?}");
    check(Signs { pid_namespace: first, ..signs }, HOME);
    check(signs, HOME);
    // `docker run`, and `docker run --pid=host`, where the driver's numbers are good.
    let docker = Signs { has_container_file: true, ..signs };
    check(Signs { pid_namespace: other, ..docker }, Place { own_pids: true, ..container });
    check(Signs { pid_namespace: first, ..docker }, container);
    check(docker, Place { own_pids: true, ..container });
    // Kubernetes leaves no file, and a version 2 control group no name.
    check(Signs { pid_namespace: other, first_group: "0::/", ..signs }, Place { own_pids: true, ..container });
    check(Signs { first_group: "4:memory:/kubepods/burstable/pod1", ..signs }, Place { own_pids: true, ..container });
    let wsl = Signs { kernel: "Linux version 5.15.153.1-microsoft-standard-WSL2", ..signs };
    check(Signs { pid_namespace: other, ..wsl }, Place { wsl: true, own_pids: true, ..HOME });
    let hides = |mounts| Place::of(&Signs { mounts, ..signs }).hides_others;
    assert!(hides("sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,hidepid=invisible,gid=20 0 0\n"));
    assert!(hides("proc /proc proc rw,hidepid=2 0 0"));
    assert!(!hides("proc /proc proc rw,hidepid=0 0 0"));
    assert!(!hides("proc /proc proc rw,nosuid 0 0\nproc /chroot/proc proc rw,hidepid=2 0 0"));
}
