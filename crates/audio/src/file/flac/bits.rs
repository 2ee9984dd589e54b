//! Reads bits, the first one of a byte first.

/// Reader of the bits of a file, which has 16 bytes of padding behind its end.
///
/// The next bits wait in a word, so that most reads are a shift. All of the word is what the file has, and `count` of its
/// bits were taken from `bytes[..position]`.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Position of the next byte that is not in the word as a whole.
    position: usize,
    word: u64,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position, word: 0, count: 0 }
    }

    /// Fills the word: 56 bits or more wait then.
    #[inline(always)]
    fn fill(&mut self) -> Option<()> {
        let next = self.bytes.get(self.position..)?.first_chunk()?;
        self.word |= u64::from_be_bytes(*next) >> self.count;
        self.position += (63 - self.count as usize) >> 3;
        self.count |= 56;
        Some(())
    }

    /// Drops bits that wait.
    #[inline(always)]
    fn skip(&mut self, count: u32) {
        self.word <<= count;
        self.count -= count;
    }

    /// Reads a number of at most 32 bits.
    #[inline(always)]
    pub(super) fn take(&mut self, bits: u32) -> Option<u32> {
        if self.count < bits {
            self.fill()?;
        }
        let value = (self.word >> 1) >> (63 - bits);
        self.skip(bits);
        Some(value as u32)
    }

    /// Reads a number of 1 to 32 bits in two's complement.
    #[inline(always)]
    pub(super) fn take_signed(&mut self, bits: u32) -> Option<i32> {
        Some(((self.take(bits)? << (32 - bits)) as i32) >> (32 - bits))
    }

    /// Counts the zeros before the next one, and reads them and the one.
    pub(super) fn unary(&mut self) -> Option<u32> {
        let mut zeros = 0;
        loop {
            self.fill()?;
            let found = self.word.leading_zeros();
            if found < self.count {
                self.skip(found);
                self.skip(1);
                return Some(zeros + found);
            }
            zeros += self.count;
            self.skip(self.count);
        }
    }

    /// Reads numbers in a Rice code: a unary number for the upper bits, and `parameter` lower bits. The lowest bit is
    /// the sign.
    #[inline(always)]
    pub(super) fn rice(&mut self, parameter: u32, values: &mut [i32]) -> Option<()> {
        // A copy stays in registers.
        let mut reader = *self;
        let mut all = 0;
        for group in values.chunks_mut(4) {
            reader.fill()?;
            for value in group {
                let zeros = reader.word.leading_zeros();
                let folded = if zeros + 1 + parameter <= reader.count {
                    reader.word <<= zeros;
                    // With the one that ends the unary number.
                    let low = reader.word >> (63 - parameter);
                    reader.word <<= parameter + 1;
                    reader.count -= zeros + 1 + parameter;
                    (u64::from(zeros) << parameter) + (low & !(1 << parameter))
                } else {
                    u64::from(reader.unary()?) << parameter | u64::from(reader.take(parameter)?)
                };
                all |= folded;
                *value = (folded as u32 >> 1) as i32 ^ -((folded & 1) as i32);
            }
        }
        *self = reader;
        (all >> 32 == 0).then_some(())
    }

    /// Goes to the next whole byte, and returns its position.
    pub(super) fn align(&mut self) -> usize {
        self.skip(self.count % 8);
        self.position - self.count as usize / 8
    }
}
