package driver

import "github.com/plait-ml/plait/core"

// A ProductGPU is a GPU whose driver calls its vendor's library for matrix products. Its command lists are [ProductList]s.
type ProductGPU interface {
	GPU
	// Products returns nil if the library is there, otherwise an error that says what is missing.
	Products() error
}

// A ProductList is a command list that takes matrix products.
type ProductList interface {
	CommandList
	// Product appends a product. It appends nothing and returns false if the library has no way to compute it. It keeps nothing of p.
	Product(p *Product) (ok bool, err error)
}

// A Product is a batch of matrix products: c = alpha a b + beta c + bias.
type Product struct {
	M, N, K, Count int // sizes of the matrices, at least 1, and of the batch
	A, B, C        Matrix
	Bias           Range // N elements of the type of c, which are added to each row; without a buffer for none
	Alpha, Beta    float64
	Factors        core.DType // of a and b: float32, float16, bfloat16 or float64
	Result         core.DType // of c: that of the factors, or float32
	Reduced        bool       // float32 factors may be rounded to TF32, and partial sums of 16-bit products to 16 bits
	Workspace      Range      // scratch memory; products of one GPU share it, so they must not run at the same time
	WorkspaceSize  int
}

// A Range is a place in a buffer.
type Range struct {
	Buffer Buffer
	Offset int // in bytes
}

// A Matrix is a factor or the result of a product, a batch of matrices. The elements of a row are contiguous, or with Columns, which the
// result never has, those of a column.
type Matrix struct {
	Range
	Columns bool
	Step    int // elements between two rows, or columns
	Next    int // elements between two matrices of the batch; 0 for a factor that the batch shares
}
