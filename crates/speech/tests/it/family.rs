//! The shipped families have the published numbers of parameters.

use burn::tensor::Device;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_tape::count;

/// Shipped sizes: width, encoder blocks, decoder blocks.
const SIZES: [(usize, usize, usize); 3] = [(256, 12, 6), (192, 8, 4), (128, 6, 3)];

#[test]
fn konkani_has_the_published_parameter_counts() {
    // The vocabulary, then the parameters of base, medium and small.
    for (vocabulary, expected) in [
        (200, [24_770_704, 9_381_712, 3_189_136]),
        (81, [24_679_074, 9_312_930, 3_143_202]),
        (1000, [25_386_704, 9_844_112, 3_497_936]),
        (5000, [28_466_704, 12_156_112, 5_041_936]),
    ] {
        for ((d, encoder, decoder), expected) in SIZES.into_iter().zip(expected) {
            let config = RecognizerConfig::konkani(d, encoder, decoder, vocabulary);
            assert_eq!(count(&config.init_unseeded(&Device::flex())), expected, "width {d}, vocabulary {vocabulary}");
        }
    }
}

#[test]
fn blocks_have_the_published_parameter_counts() {
    let parameters =
        |encoder, decoder| count(&RecognizerConfig::konkani(256, encoder, decoder, 200).init_unseeded(&Device::flex()));
    assert_eq!(parameters(2, 1) - parameters(1, 1), 1_522_944);
    assert_eq!(parameters(1, 2) - parameters(1, 1), 1_053_440);
}
