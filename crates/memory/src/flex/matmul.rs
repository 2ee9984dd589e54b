//! Predicts the memory of a matrix product: its output, and the copies of its operands that the `gemm` crate makes.

use burn::tensor::DType;
use plimsoll_tape::SimulatedDevice;
use plimsoll_tape::ir::MatmulOpIr;

use super::Flex;
use crate::heap::Value;

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
    fn pack_operands(&mut self, left: &Value, right: &Value) {
        let (rank, right_rank) = (left.shape.len(), right.shape.len());
        let (m, k, n) = (left.shape[rank - 2], left.shape[rank - 1], right.shape[right_rank - 1]);
        let batch: usize = left.shape[..rank - 2].iter().product();
        let turned = [left.strides[rank - 2] == 1, right.strides[right_rank - 2] == 1];
        let scratch =
            self.heap.scratch(SimulatedDevice::packed_values([m, k, n], turned) * 4 * batch.clamp(1, self.threads));
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
