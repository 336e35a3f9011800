package contract

// Row i of a matrix in compressed rows has the entries from crow[i] to crow[i+1]. Entry k is in column col[k] and has the value
// values[order[k]], or values[k] without an order. All operands are contiguous; crow, col and order are int64.
var (
	// CSRMatmul writes y[i, :] = sum of value k times x[col[k], :] over the entries k of row i.
	CSRMatmul = declare(Contract{Name: "csr_matmul", Outs: "y", Ins: "crow col order? values x"})
	// CSRSampledMatmul writes the value of each entry: the sum over j of a[i, j] * b[col[k], j].
	CSRSampledMatmul = declare(Contract{Name: "csr_sampled_matmul", Outs: "values", Ins: "crow col order? a b"})
)
