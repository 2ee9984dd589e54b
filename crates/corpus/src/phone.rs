//! Phones of the lexicon, as acoustic targets of an average adult male vocal tract.
//!
//! Vowels follow Peterson and Barney (1952), consonant loci and noise follow Klatt (1980), rounded.

/// Frequencies of the first three formants in hertz.
pub(super) type Formants = [f32; 3];

/// Manner of articulation, which decides the parts of a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Voiced sound of an open vocal tract, which may glide from one target to another.
    Vowel,
    /// Voiced sound of a vocal tract narrower than for a vowel: l, r, w, y.
    Approximant,
    /// Voiced sound through the nose.
    Nasal,
    /// Noise from a narrow constriction, voiced or voiceless.
    Fricative,
    /// Silence of a closure, followed by a burst.
    Stop,
    /// Stop that opens into a fricative.
    Affricate,
    /// Breath through the vocal tract of the following vowel.
    Breath,
}

/// Noise made at a constriction of the vocal tract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frication {
    /// Center frequency of the noise in hertz; `None` is the second formant, as for velar sounds.
    pub(super) peak: Option<f32>,
    /// Bandwidth of the noise in hertz.
    pub(super) width: f32,
    /// Level of the noise, relative to the hiss of an s.
    pub(super) level: f32,
}

/// Phone: one sound of the language.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phone {
    /// Name of the phone in the lexicon (ARPAbet, in lower case).
    pub(super) name: &'static str,
    /// Manner of articulation of the phone.
    pub(super) manner: Manner,
    /// Whether the glottis vibrates during the phone.
    pub(super) voiced: bool,
    /// Formants at the start of the phone.
    pub(super) from: Formants,
    /// Formants at the end of the phone, which differ from the formants at its start only for a diphthong.
    pub(super) to: Formants,
    /// Usual length of the phone in seconds; for stops the length of the closure.
    pub(super) secs: f32,
    /// Share by which the second formant moves towards the second formant of the neighboring vowel, from 0 to 1.
    pub(super) coarticulation: f32,
    /// Noise of the phone, for stops, affricates and fricatives.
    pub(super) frication: Frication,
}

/// Returns the phone with this name; `None` for an unknown name.
pub(super) fn phone(name: &str) -> Option<&'static Phone> {
    PHONES.iter().find(|phone| phone.name == name)
}

const NO_FRICATION: Frication = Frication { peak: None, width: 1000.0, level: 0.0 };

const fn noise(peak: f32, width: f32, level: f32) -> Frication {
    Frication { peak: Some(peak), width, level }
}

const fn vowel(name: &'static str, at: Formants, secs: f32) -> Phone {
    glide(name, at, at, secs)
}

const fn glide(name: &'static str, from: Formants, to: Formants, secs: f32) -> Phone {
    Phone { name, manner: Manner::Vowel, voiced: true, from, to, secs, coarticulation: 0.0, frication: NO_FRICATION }
}

const fn sonorant(name: &'static str, manner: Manner, at: Formants, secs: f32, coarticulation: f32) -> Phone {
    Phone { name, manner, voiced: true, from: at, to: at, secs, coarticulation, frication: NO_FRICATION }
}

const fn obstruent(
    name: &'static str,
    (manner, voiced): (Manner, bool),
    at: Formants,
    secs: f32,
    coarticulation: f32,
    frication: Frication,
) -> Phone {
    Phone { name, manner, voiced, from: at, to: at, secs, coarticulation, frication }
}

const VOICED_STOP: (Manner, bool) = (Manner::Stop, true);
const VOICELESS_STOP: (Manner, bool) = (Manner::Stop, false);
const VOICED_FRICATIVE: (Manner, bool) = (Manner::Fricative, true);
const VOICELESS_FRICATIVE: (Manner, bool) = (Manner::Fricative, false);

const LIPS: Formants = [220.0, 900.0, 2200.0];
const TEETH: Formants = [250.0, 1350.0, 2550.0];
const RIDGE: Formants = [240.0, 1750.0, 2650.0];
const PALATE: Formants = [260.0, 1950.0, 2600.0];
const VELUM: Formants = [230.0, 1700.0, 2150.0];

/// Every phone that occurs in words of the lexicon.
pub(super) static PHONES: [Phone; 40] = [
    vowel("iy", [280.0, 2290.0, 3010.0], 0.115),
    vowel("ih", [400.0, 1970.0, 2550.0], 0.085),
    vowel("eh", [540.0, 1820.0, 2480.0], 0.100),
    vowel("ae", [680.0, 1700.0, 2410.0], 0.125),
    vowel("aa", [740.0, 1110.0, 2440.0], 0.130),
    vowel("ao", [570.0, 840.0, 2410.0], 0.130),
    vowel("uh", [440.0, 1040.0, 2240.0], 0.090),
    vowel("uw", [310.0, 880.0, 2240.0], 0.115),
    vowel("ah", [630.0, 1220.0, 2390.0], 0.095),
    vowel("er", [470.0, 1330.0, 1690.0], 0.120),
    vowel("ax", [480.0, 1450.0, 2450.0], 0.060),
    glide("ey", [500.0, 1950.0, 2550.0], [320.0, 2250.0, 2800.0], 0.140),
    glide("ay", [730.0, 1200.0, 2450.0], [370.0, 2100.0, 2650.0], 0.160),
    glide("oy", [540.0, 850.0, 2400.0], [370.0, 2050.0, 2550.0], 0.170),
    glide("ow", [550.0, 1000.0, 2400.0], [370.0, 780.0, 2300.0], 0.145),
    glide("aw", [730.0, 1300.0, 2450.0], [400.0, 880.0, 2300.0], 0.165),
    sonorant("l", Manner::Approximant, [350.0, 1050.0, 2850.0], 0.065, 0.15),
    sonorant("r", Manner::Approximant, [320.0, 1080.0, 1400.0], 0.070, 0.15),
    sonorant("w", Manner::Approximant, [290.0, 630.0, 2150.0], 0.070, 0.05),
    sonorant("y", Manner::Approximant, [260.0, 2200.0, 3020.0], 0.065, 0.05),
    sonorant("m", Manner::Nasal, [280.0, 950.0, 2200.0], 0.075, 0.35),
    sonorant("n", Manner::Nasal, [280.0, 1700.0, 2600.0], 0.070, 0.20),
    sonorant("ng", Manner::Nasal, [280.0, 2000.0, 2250.0], 0.085, 0.50),
    obstruent("p", VOICELESS_STOP, LIPS, 0.070, 0.50, noise(900.0, 1800.0, 0.45)),
    obstruent("t", VOICELESS_STOP, RIDGE, 0.055, 0.30, noise(4200.0, 2200.0, 1.0)),
    obstruent("k", VOICELESS_STOP, VELUM, 0.060, 0.75, Frication { peak: None, width: 500.0, level: 0.9 }),
    obstruent("b", VOICED_STOP, LIPS, 0.065, 0.50, noise(800.0, 1800.0, 0.30)),
    obstruent("d", VOICED_STOP, RIDGE, 0.050, 0.30, noise(4000.0, 2200.0, 0.6)),
    obstruent("g", VOICED_STOP, VELUM, 0.055, 0.75, Frication { peak: None, width: 500.0, level: 0.6 }),
    obstruent("f", VOICELESS_FRICATIVE, LIPS, 0.095, 0.45, noise(1600.0, 6000.0, 0.30)),
    obstruent("th", VOICELESS_FRICATIVE, TEETH, 0.090, 0.35, noise(6300.0, 3500.0, 0.33)),
    obstruent("s", VOICELESS_FRICATIVE, RIDGE, 0.105, 0.25, noise(5600.0, 1600.0, 1.0)),
    obstruent("sh", VOICELESS_FRICATIVE, PALATE, 0.105, 0.25, noise(2900.0, 900.0, 1.0)),
    obstruent("v", VOICED_FRICATIVE, LIPS, 0.060, 0.45, noise(1600.0, 6000.0, 0.16)),
    obstruent("dh", VOICED_FRICATIVE, TEETH, 0.050, 0.35, noise(6300.0, 3500.0, 0.16)),
    obstruent("z", VOICED_FRICATIVE, RIDGE, 0.080, 0.25, noise(5600.0, 1600.0, 0.60)),
    obstruent("zh", VOICED_FRICATIVE, PALATE, 0.080, 0.25, noise(2900.0, 900.0, 0.60)),
    obstruent("ch", (Manner::Affricate, false), PALATE, 0.045, 0.25, noise(3100.0, 1100.0, 1.0)),
    obstruent("jh", (Manner::Affricate, true), PALATE, 0.040, 0.25, noise(3000.0, 1100.0, 0.65)),
    obstruent("hh", (Manner::Breath, false), [500.0, 1500.0, 2500.0], 0.060, 1.0, NO_FRICATION),
];
