//! Operations of neural network layers: embeddings and convolutions.

use plimsoll_tape::ir::{ModuleOperationIr, OperationIr};

use super::Flex;

impl Flex<'_> {
    /// Simulates an operation of a neural network layer.
    pub(super) fn module(&mut self, module: &ModuleOperationIr) {
        match module {
            ModuleOperationIr::Embedding(op) => self.gather(&op.weights, &op.indices, &op.out),
            ModuleOperationIr::EmbeddingBackward(op) => {
                let (indices, gradient) = (self.heap.take(&op.indices), self.heap.take(&op.out_grad));
                let result = self.heap.aligned(&op.out.shape, op.out.dtype.size());
                let read = [self.read(&indices), self.read(&gradient)];
                let wide = self.heap.scratch(indices.count() * 8);
                self.heap.give(&op.out, result);
                self.free(read);
                self.free([wide, indices, gradient]);
            }
            ModuleOperationIr::Conv1d(op) => {
                let (x, weight) = (self.heap.take(&op.x), self.heap.take(&op.weight));
                let bias = op.bias.as_ref().map(|bias| self.heap.take(bias));
                let value = self.convolution(x, weight, &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(bias);
            }
            ModuleOperationIr::Conv2d(op) => {
                let (x, weight) = (self.heap.take(&op.x), self.heap.take(&op.weight));
                let bias = op.bias.as_ref().map(|bias| self.heap.take(bias));
                let value = self.convolution(x, weight, &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(bias);
            }
            ModuleOperationIr::Conv1dXBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.weight), self.heap.take(&op.output_grad)];
                let value = self.transposed_convolution(&all[2], &all[1], &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(all);
            }
            ModuleOperationIr::Conv2dXBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.weight), self.heap.take(&op.output_grad)];
                let value = self.transposed_convolution(&all[2], &all[1], &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(all);
            }
            ModuleOperationIr::Conv1dWeightBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.output_grad)];
                let weight = self.heap.take(&op.weight);
                self.weight_gradient(all, &op.out, op.options.groups);
                self.heap.free(weight);
            }
            ModuleOperationIr::Conv2dWeightBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.output_grad)];
                let weight = self.heap.take(&op.weight);
                self.weight_gradient(all, &op.out, op.options.groups);
                self.heap.free(weight);
            }
            ModuleOperationIr::Conv1dBiasBackward(op) => self.bias_gradient(&op.output_grad, &op.x, &op.bias, &op.out),
            ModuleOperationIr::Conv2dBiasBackward(op) => self.bias_gradient(&op.output_grad, &op.x, &op.bias, &op.out),
            other => self.fresh_outputs(&OperationIr::Module(other.clone())),
        }
    }
}
