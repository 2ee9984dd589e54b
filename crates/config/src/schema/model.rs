//! Keys of `[model]`: the structure and size of the model.

use std::ops::Bound::{Excluded, Included};

use serde::{Deserialize, Serialize};

use crate::choices::{
    AttentionChoice, DecoderNormChoice, EncoderChoice, FamilyChoice, MelLossChoice, NormChoice, PositionsChoice,
};
use crate::key::Key;
use crate::kind::{Interval, Kind};

section! {
    /// The structure and size of the model. ASR, TTS and Vocoder mark keys that only one task uses.
    ModelConfig, "model." {
        /// Width of the model: an even number, and a multiple of `model.attention_heads`.
        d_model: u32 = 96, Kind::Integer(1, 65_536);
        /// ASR: kind of the encoder blocks: `conformer` (attention beside convolutions) or `convolution` (ConvNeXt blocks, which
        /// learn more from a few hours, in less time).
        encoder: EncoderChoice = EncoderChoice::Conformer, Kind::OneOf(EncoderChoice::NAMES);
        /// ASR: number of encoder blocks.
        encoder_layers: u32 = 3, Kind::Integer(1, 1024);
        /// Attention heads per block.
        attention_heads: u32 = 4, Kind::Integer(1, 1024);
        /// ASR: width of the convolution in each encoder block, in frames; an odd number.
        conv_kernel: u32 = 15, Kind::Integer(1, 1023);
        /// Width of the feed-forward layers, as a multiple of the width around them.
        feed_forward_multiplier: u32 = 4, Kind::Integer(1, 64);
        /// ASR: number of frames that convolutions combine into one before the first block: 1 (none), 2, 4 or 8.
        subsampling: u32 = 4, Kind::Integer(1, 8);
        /// ASR: channels of the convolutions of `model.subsampling`.
        subsampling_channels: u32 = 32, Kind::Integer(1, 65_536);
        /// ASR: how the encoder represents positions: `absolute` (sinusoids added to its input), `relative` (distances inside
        /// attention) or `rotary` (rotated queries and keys).
        positions: PositionsChoice = PositionsChoice::Absolute, Kind::OneOf(PositionsChoice::NAMES);
        /// ASR: normalization inside the convolutions: `layer` (over the channels of a frame), `group` (over groups of channels
        /// of an utterance) or `batch` (over the batch). With `batch`, results depend on the micro-batch size.
        conv_norm: NormChoice = NormChoice::Layer, Kind::OneOf(NormChoice::NAMES);
        /// ASR: number of channel groups for `model.conv_norm` = `group`.
        conv_norm_groups: u32 = 8, Kind::count(1);
        /// ASR: whether the encoder's input is multiplied by the square root of its width.
        scale_input: bool = true, Kind::Bool;
        /// How attention is computed: `exact` (all at once), `chunked` (same result in less memory) or `truncate` (ASR only:
        /// cuts long utterances). `auto` is `exact`, or `chunked` for lengths at which memory is short.
        attention: AttentionChoice = AttentionChoice::Auto, Kind::OneOf(AttentionChoice::NAMES);
        /// Number of queries computed at a time with `model.attention` = `chunked`.
        attention_chunk: u32 = 64, Kind::count(1);
        /// ASR: number of frames, after subsampling, that `model.attention` = `truncate` keeps of an utterance. Required there;
        /// each cut is counted.
        max_attention_sequence_length: Option<u32> = None, Kind::count(1);
        /// Number of decoder blocks. Default: 0 for ASR, which then trains with CTC alone, 6 for
        /// parallel TTS, and 3 for autoregressive TTS.
        decoder_layers: Option<u32> = None, Kind::Integer(0, 1024);
        /// ASR: width of the decoder's feed-forward layers, as a multiple of `model.d_model`.
        decoder_feed_forward_multiplier: u32 = 4, Kind::Integer(1, 64);
        /// ASR: place of the decoder's normalization: `pre` (before each sublayer) or `post` (after the residual sum).
        decoder_norm: DecoderNormChoice = DecoderNormChoice::Pre, Kind::OneOf(DecoderNormChoice::NAMES);
        /// ASR: weight of the CTC loss if there is a decoder; the decoder's cross-entropy has the rest, up to 1.
        ctc_weight: f64 = 0.3, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// ASR: share of each label that the decoder's loss spreads over the whole vocabulary.
        label_smoothing: f64 = 0.1, Kind::Number(Interval::BELOW_ONE);
        /// Whisper: number of positions that the encoder hears at once, each 20 ms. Shorter recordings are filled up with silence. The
        /// published models learned 1500; fewer take less memory and time.
        audio_positions: u32 = 1500, Kind::Integer(2, 65_536);
        /// Whisper: number of positions of the decoder: most tokens of a text, with those that begin it.
        text_positions: u32 = 448, Kind::Integer(8, 65_536);
        /// Vocabulary size: the number of tokens that the model distinguishes. Default and minimum: those of the tokenizer, which
        /// for `char` are the characters of the training texts and 4 special tokens.
        vocabulary: Option<u32> = None, Kind::Integer(5, 1_000_000);
        /// Share of activations that are set to zero in training.
        dropout: f64 = 0.1, Kind::Number(Interval::BELOW_ONE);
        /// Family of the model. TTS: `parallel` (predicts how long each token lasts, then all frames at once) or `autoregressive` (each
        /// step reads the frames before it and attends to the text). ASR: `whisper`, which begins with a trained model; each other
        /// family stands for a recognizer with CTC.
        family: FamilyChoice = FamilyChoice::Parallel, Kind::OneOf(FamilyChoice::NAMES);
        /// TTS: width of the text encoder. Default: `model.d_model`.
        text_encoder_dim: Option<u32> = None, Kind::count(2);
        /// TTS: number of text encoder blocks.
        text_encoder_layers: u32 = 3, Kind::Integer(1, 1024);
        /// Autoregressive TTS: attention heads of the text encoder. Default: `model.attention_heads`.
        text_encoder_heads: Option<u32> = None, Kind::Integer(1, 1024);
        /// Parallel TTS: number of tokens under the convolution of each text block; an odd number.
        text_encoder_kernel: u32 = 5, Kind::Integer(1, 1023);
        /// TTS: width of the decoder. Default: `model.d_model`.
        decoder_dim: Option<u32> = None, Kind::count(2);
        /// Parallel TTS: number of frames under the convolution of each decoder block; an odd number.
        decoder_kernel: u32 = 7, Kind::Integer(1, 1023);
        /// Autoregressive TTS: attention heads of the decoder. Default: `model.attention_heads`.
        decoder_heads: Option<u32> = None, Kind::Integer(1, 1024);
        /// TTS: channels of the audio encoder, the convolutions that read the reference audio. Default: `model.d_model`.
        audio_encoder_dim: Option<u32> = None, Kind::count(1);
        /// TTS: number of convolutions in the audio encoder.
        audio_encoder_layers: u32 = 3, Kind::Integer(1, 64);
        /// TTS: width of the speaker embedding.
        speaker_dim: u32 = 64, Kind::count(1);
        /// Parallel TTS: whether the voice of the reference reaches durations, prosody and each block of the decoder by ways of its own, and not
        /// only through the text. With `model.pitch` the pitch of the reference counts, too. For a corpus of several speakers.
        voice_links: bool = false, Kind::Bool;
        /// TTS: number of style tokens, learned styles beside the speaker embedding; 0 for none.
        style_tokens: u32 = 10, Kind::count(0);
        /// Autoregressive TTS: width of the prenet, the layers that read the previous frame. Default: the decoder's width.
        prenet_dim: Option<u32> = None, Kind::count(1);
        /// Autoregressive TTS: dropout of the prenet, in training and in synthesis. It makes the decoder rely on the text, not on the previous
        /// frame.
        prenet_dropout: f64 = 0.5, Kind::Number(Interval::BELOW_ONE);
        /// Autoregressive TTS: number of convolutions in the postnet, which refines the frames; 0 for no postnet, otherwise at least 2.
        postnet_layers: u32 = 3, Kind::Integer(0, 64);
        /// Autoregressive TTS: channels of the postnet. Default: the decoder's width.
        postnet_channels: Option<u32> = None, Kind::count(1);
        /// Autoregressive TTS: number of frames that the decoder predicts in one step.
        reduction_factor: u32 = 3, Kind::Integer(1, 64);
        /// TTS: loss between predicted and true frames: `l1` (absolute difference) or `huber` (squared for differences below 1).
        mel_loss: MelLossChoice = MelLossChoice::L1, Kind::OneOf(MelLossChoice::NAMES);
        /// Parallel TTS: weight of the distance between a frame and what its token expects, from which the alignment is
        /// learned.
        prior_loss_weight: f64 = 0.5, Kind::Number(Interval::POSITIVE);
        /// Parallel TTS: weight of the error of predicted durations.
        duration_loss_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// Parallel TTS: number of learned values that say how each token is spoken. They are found in the recordings, and
        /// predicted from the text in generation; without them the frames of a token are a mean of all ways to speak it. 0 turns them off.
        prosody_dim: u32 = 0, Kind::Integer(0, 64);
        /// Parallel TTS: whether each token has a pitch and an energy of its own, beside the values of `model.prosody_dim`. They are measured in
        /// the recordings and predicted from the text, and `say --pitch` and `--energy` change them.
        pitch: bool = false, Kind::Bool;
        /// Parallel TTS with `model.pitch`: whether the decoder gets the harmonics of each token's pitch, and not only a number.
        /// For a corpus of several speakers.
        pitch_harmonics: bool = false, Kind::Bool;
        /// Parallel TTS: noise on the values of `model.prosody_dim` in training, as a standard deviation, and a part of it on pitch and energy. So
        /// the decoder trusts those of the recordings no more than predicted ones, which are less exact.
        prosody_noise: f64 = 0.6, Kind::Number(Interval::NOT_NEGATIVE);
        /// Parallel TTS: weight of the error of the predicted values of `model.prosody_dim` and `model.pitch`.
        prosody_loss_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// Autoregressive TTS: weight of the stop loss, which trains when to stop; the frame loss has weight 1.
        stop_loss_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// Autoregressive TTS: weight of the last step of an utterance in the stop loss. All other steps have weight 1 and are far more frequent.
        stop_positive_weight: f64 = 5.0, Kind::Number(Interval::POSITIVE);
        /// Autoregressive TTS: weight of the guided attention loss, which penalizes attention far from the diagonal; 0 turns it off.
        guided_attention_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// Autoregressive TTS: width of the diagonal of the guided attention loss, as a share of the utterance.
        guided_attention_sigma: f64 = 0.2, Kind::Number(Interval(Excluded(0.0), Included(1.0)));
        /// Vocoder: number of blocks.
        vocoder_layers: u32 = 6, Kind::Integer(1, 1024);
        /// Vocoder: number of frames under the convolution of each block; an odd number.
        vocoder_kernel: u32 = 7, Kind::Integer(1, 1023);
        /// Vocoder: channels of the first layer of each discriminator, which learns to tell recordings from generated sound;
        /// later layers have up to 8 times as many.
        discriminator_channels: u32 = 8, Kind::Integer(1, 1024);
        /// Vocoder: weight of the difference of log-mels, in nats.
        mel_loss_weight: f64 = 5.0, Kind::Number(Interval::POSITIVE);
        /// Vocoder: weight of the spectral loss at several resolutions.
        spectrum_loss_weight: f64 = 2.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// Vocoder: weight of the loss for sound that a discriminator recognizes as generated.
        adversarial_loss_weight: f64 = 0.5, Kind::Number(Interval::NOT_NEGATIVE);
        /// Vocoder: weight of the difference of the discriminators' hidden values.
        feature_loss_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
    }
}
