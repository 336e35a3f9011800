package bind

// TensorAdopt makes the tensor share the memory, dtype and layout of another, as an assignment to its data does; a leaf
// keeps its gradient and its hooks.
func TensorAdopt(t Tensor, from Tensor) (status Status) {
	defer protect("set_", &status)
	if err := tensor(t).Adopt(tensor(from)); err != nil {
		return failure(err)
	}
	return 0
}
