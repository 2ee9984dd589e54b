//! Predicts the memory of a matrix product: its output, and the copies of its operands that the `gemm` crate makes.

use burn::tensor::DType;
use plimsoll_tape::ir::MatmulOpIr;

use super::Flex;
use crate::heap::Value;

/// Largest number of columns of the left operand (and rows of the right operand) that gemm packs at a time.
const DEPTH: usize = 512;
/// Number of rows of the product that gemm's innermost kernel computes at a time, on processors with wide registers.
const ROWS: usize = 48;
/// Number of groups of [`ROWS`] rows of the left operand beyond which gemm packs the right operand whatever its layout.
const PACKING: usize = 8;
/// Bytes of the cache for which gemm blocks its left operand: the second-level cache of a server processor.
const CACHE: usize = 2 << 20;

impl Flex<'_> {
    /// Simulates a matrix product: bf16 operands are converted to 32 bits, as gemm has no bf16 product.
    pub(super) fn matmul(&mut self, op: &MatmulOpIr) {
        let (left, right) = (self.heap.take(&op.lhs), self.heap.take(&op.rhs));
        let value = if left.width == 2 && matches!(op.lhs.dtype, DType::BF16) {
            self.matmul_bf16(&left, &right, &op.out.shape)
        } else {
            let value = self.heap.aligned(&op.out.shape, op.out.dtype.size());
            self.pack_operands(&left, &right);
            value
        };
        self.heap.give(&op.out, value);
        self.free([left, right]);
    }

    /// Simulates the memory into which gemm packs (copies) operands during a product: allocates it, and frees it again.
    ///
    /// The left operand is packed if it fits the cache and is not stored column by column. The right operand is packed
    /// if the left operand has many rows, see [`PACKING`]; fewer rows suffice if it is not stored column by column.
    fn pack_operands(&mut self, left: &Value, right: &Value) {
        let (rank, right_rank) = (left.shape.len(), right.shape.len());
        let (m, k, n) = (left.shape[rank - 2], left.shape[rank - 1], right.shape[right_rank - 1]);
        let batch: usize = left.shape[..rank - 2].iter().product();
        let kc = k.clamp(1, DEPTH);
        let packs_right = right.strides[right_rank - 2] != 1 && m > 2 * ROWS || m > PACKING * ROWS;
        let packs_left = m <= 2 * (CACHE / 4 / kc) && left.strides[rank - 2] != 1;
        let values = usize::from(packs_right) * kc * n.next_multiple_of(8)
            + usize::from(packs_left) * kc * m.next_multiple_of(ROWS);
        let scratch = self.heap.scratch(values * 4 * batch.clamp(1, self.threads));
        self.heap.free(scratch);
    }

    /// Simulates a bf16 matrix product, whose operands and result also exist in fp32.
    fn matmul_bf16(&mut self, left: &Value, right: &Value, shape: &[usize]) -> Value {
        let ordered = [self.read(left), self.read(right)];
        let wide = [self.heap.fresh(&left.shape, 4), self.heap.fresh(&right.shape, 4)];
        let product = self.heap.aligned(shape, 4);
        self.free(wide);
        let result = self.heap.fresh(shape, 2);
        self.heap.free(product);
        self.free(ordered);
        result
    }
}
