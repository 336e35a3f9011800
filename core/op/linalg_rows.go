package op

import "github.com/plait-ml/plait/core"

func init() {
	x, m, b := Arg{Name: "input", Doc: "matrices [*, n, n]"}, Arg{Name: "A"}, Arg{Name: "B"}
	any2 := Arg{Name: "input", Doc: "matrices [*, m, n]"}
	upper := Arg{Name: "upper", Default: false}
	triangle := Arg{Name: "UPLO", Default: "", Doc: "the triangle of symmetric matrices that is read, L or U; by default the symmetric part is taken"}
	float := []core.DType{core.Float32}
	of := func(name string, args ...any) Sample {
		return Sample{Name: name, Args: args, Loose: 100, DTypes: float}
	}
	full := T{Shape: []int{2, 3, 3}, Values: []float64{4, 1, -0.5, 0.3, 3, 0.2, 0.5, -0.7, 2, -3, 0.4, 1, 0.2, 2.5, 0.6, 1, 0.1, 1.5}}
	positive := T{Shape: []int{2, 3, 3}, Values: []float64{4, 1, 0.5, 1, 3, 0.2, 0.5, 0.2, 2, 2, -0.3, 0.1, -0.3, 1.5, 0.4, 0.1, 0.4, 3}}
	// The eigenvalues are real, and LAPACK gives the vectors the same signs in each dtype.
	apart := T{Shape: []int{2, 3, 3}, Values: []float64{4.2, -0.3, -0.6, -0.6, 1.4, 0.5, 0.1, 0.3, -1.9, -2.5, 0.4, -0.6, 0.4, 1.9, 0.3, -0.4, 0.4, 0.7}}
	tall := T{Shape: []int{4, 3}, Values: []float64{3, 0.2, 0.1, -0.4, 2, 0.3, 0.5, 0.1, 1, 0.2, -0.6, 0.4}}
	wide := T{Shape: []int{2, 3}, Values: []float64{3, 0.2, 0.1, -0.4, 1.5, 0.3}}
	none := Shaped(0, 2, 2)
	hermitian := Arg{Name: "hermitian", Default: false, Doc: "whether the conjugate, and not the transpose, of a complex matrix is the matrix"}
	blocks := T{Shape: []int{3, 3}, Values: []float64{0.3, 2, -0.5, 2, 0.1, 3, -0.5, 3, 0.2}}
	exchanges := func(shape []int, rows ...float64) T {
		return T{Shape: shape, DType: core.Int32, Fixed: true, Values: rows, NoGrad: true}
	}
	both := []Sample{of("square", full), of("tall", tall), of("wide", wide), of("no matrices", none)}
	norms := []Sample{}
	for _, order := range []string{"fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf"} {
		norms = append(norms, of(order, tall, order))
	}
	register("linalg",
		Row{Name: "linalg_inv", Func: Inv, Args: []Arg{x}, Doc: "The inverses of matrices.", Samples: []Sample{of("stack", full), of("no matrices", none)}},
		Row{Name: "linalg_solve", Func: Solve, Args: []Arg{m, b}, Doc: "The X of A X = B.",
			Samples: []Sample{of("matrices", full, Shaped(2, 3, 2)), of("columns", full, Shaped(2, 3)), of("broadcast", full, Shaped(3, 1)), of("vector", full, Shaped(3))}},
		Row{Name: "linalg_solve_triangular", Func: SolveTriangular, Args: []Arg{m, b, upper, {Name: "unitriangular", Default: false}}, Doc: "The X of A X = B for triangular A.",
			Samples: []Sample{of("lower", full, Shaped(2, 3, 2), false, false), of("upper", full, Shaped(3, 2), true, false), of("unit", full, Shaped(2, 3, 1), false, true)}},
		Row{Name: "linalg_det", Func: Det, Args: []Arg{x}, Doc: "The determinants of matrices.", Samples: []Sample{of("stack", full), of("no matrices", none)}},
		Row{Name: "linalg_slogdet", Func: SlogDet, Args: []Arg{x}, Doc: "The signs and the logarithms of the magnitudes of determinants of square matrices.", Samples: []Sample{of("stack", full)}},
		Row{Name: "linalg_cholesky", Func: Cholesky, Args: []Arg{x, upper, triangle}, Doc: "The triangular factors of symmetric positive definite matrices.",
			Samples: []Sample{of("lower", positive, false, ""), of("upper", positive, true, "")}},
		Row{Name: "linalg_cholesky_ex", Func: CholeskyInfo, Args: []Arg{x, upper, triangle}, Doc: "Triangular factors of symmetric matrices, and where these are not positive definite.",
			Samples: []Sample{of("lower", positive, false, ""), of("upper", positive, true, "")}},
		Row{Name: "linalg_lu_factor_ex", Func: LUFactor, Args: []Arg{any2}, Doc: "Matrices of exchanged rows as products of triangular ones, the exchanges, and where a matrix is singular.",
			Samples: both},
		Row{Name: "lu_unpack", Func: LUUnpack, Args: []Arg{{Name: "LU_data"}, {Name: "LU_pivots"}}, Doc: "The permutation and the triangular matrices of an LU decomposition.",
			Samples: []Sample{of("square", full, exchanges([]int{2, 3}, 3, 2, 3, 1, 3, 3)), of("tall", tall, exchanges([]int{3}, 4, 2, 4)), of("wide", wide, exchanges([]int{2}, 2, 2))}},
		Row{Name: "linalg_lu_solve", Func: LUSolve, Args: []Arg{{Name: "LU"}, {Name: "pivots"}, b, {Name: "adjoint", Default: false}}, Doc: "The X of A X = B for an A of which the LU decomposition is known.",
			Samples: []Sample{of("stack", full, exchanges([]int{2, 3}, 3, 2, 3, 1, 3, 3), Shaped(3, 2), false), of("adjoint", full, exchanges([]int{2, 3}, 3, 2, 3, 1, 3, 3), Shaped(2, 3, 1), true)}},
		Row{Name: "geqrf", Func: Geqrf, Args: []Arg{any2}, NoGrad: "to want one is an error", Doc: "The QR decompositions of matrices as R and reflections.", Samples: both},
		Row{Name: "linalg_householder_product", Func: HouseholderProduct, Args: []Arg{any2, {Name: "tau", Doc: "factors [*, k] of the reflections"}}, Doc: "The first columns of products of reflections.",
			Samples: []Sample{of("square", full, Shaped(2, 3)), of("tall", tall, Shaped(3)), of("fewer", tall, Shaped(2)), of("none", tall, Shaped(0)), of("no matrices", none, Shaped(0, 2))}},
		Row{Name: "ormqr", Func: Ormqr, Args: []Arg{any2, {Name: "input2", Doc: "factors [*, k] of the reflections"}, {Name: "input3", Doc: "the matrices that are multiplied"}, {Name: "left", Default: true, Doc: "whether Q stands to the left of the matrices"}, {Name: "transpose", Default: false, Doc: "whether Q is transposed, and of complex numbers conjugated"}}, Doc: "Matrices multiplied by products of reflections.",
			Samples: []Sample{of("left", full, Shaped(2, 3), Shaped(2, 3, 2), true, false), of("transposed", tall, Shaped(3), Shaped(4, 2), true, true),
				of("right", tall, Shaped(3), Shaped(2, 4), false, false), of("right transposed", wide, Shaped(2), Shaped(3, 2), false, true), of("no columns", tall, Shaped(3), Shaped(4, 0), true, false)}},
		Row{Name: "linalg_ldl_factor_ex", Func: LDLFactor, Args: []Arg{x, hermitian}, NoGrad: "to want one is an error", Doc: "Symmetric matrices of exchanged rows and columns as products of triangular ones and one of blocks, the exchanges, and where a matrix is singular.",
			Samples: []Sample{of("symmetric", positive, false), of("blocks", blocks, false), of("hermitian", blocks, true), of("no matrices", none, false)}},
		Row{Name: "linalg_ldl_solve", Func: LDLSolve, Args: []Arg{{Name: "LD", Doc: "the factors of matrices [*, n, n] in lower triangles"}, {Name: "pivots", Doc: "exchanges [*, n] of rows, int32"}, b, hermitian}, Doc: "The X of A X = B for an A of which the LDL decomposition is known.",
			Samples: []Sample{of("stack", positive, exchanges([]int{2, 3}, 1, 3, 3, 1, 2, 3), Shaped(3, 2), false),
				of("blocks", full, exchanges([]int{2, 3}, -3, -3, 3, 2, -3, -3), Shaped(2, 3, 1), false), of("hermitian", full, exchanges([]int{2, 3}, -3, -3, 3, 2, -3, -3), Shaped(3, 2), true),
				of("empty", Shaped(0, 0), exchanges([]int{0}), Shaped(0, 2), false)}},
		Row{Name: "linalg_qr", Func: QR, Args: []Arg{any2}, Doc: "Matrices as products of ones with orthonormal columns and triangular ones.", Samples: []Sample{of("square", full), of("tall", tall), of("wide", wide)}},
		Row{Name: "linalg_eigh", Func: Eigh, Args: []Arg{x, triangle}, Doc: "The eigenvalues and eigenvectors of symmetric matrices.", Samples: []Sample{of("stack", positive, "")}},
		Row{Name: "linalg_eigvalsh", Func: EigValsH, Args: []Arg{x, triangle}, Doc: "The eigenvalues of symmetric matrices.", Samples: []Sample{of("stack", positive, "")}},
		Row{Name: "linalg_eig", Func: Eig, Args: []Arg{x}, Doc: "The complex eigenvalues and eigenvectors of square matrices.",
			Samples: []Sample{of("stack", apart)}},
		Row{Name: "linalg_eigvals", Func: EigVals, Args: []Arg{x}, Doc: "The complex eigenvalues of square matrices.", Samples: []Sample{of("stack", apart)}},
		Row{Name: "linalg_svd", Func: SVD, Args: []Arg{any2}, Doc: "Matrices by their singular values and vectors.",
			// Equal rows, which tests make of it, have no derivatives of the vectors.
			Samples: []Sample{of("square", full), of("tall", tall), of("wide", wide), of("no matrices", T{Shape: none.Shape, NoGrad: true})}},
		Row{Name: "linalg_svdvals", Func: SVDVals, Args: []Arg{any2}, Doc: "The singular values of matrices.", Samples: both},
		Row{Name: "linalg_pinv", Func: Pinv, Args: []Arg{any2, {Name: "rtol", Default: -1.0}}, Doc: "The pseudoinverses of matrices.",
			Samples: []Sample{of("square", full, -1.0), of("tall", tall, -1.0), of("wide", wide, 1e-3)}},
		Row{Name: "linalg_lstsq", Func: LstSq, Args: []Arg{m, b, {Name: "rcond", Default: -1.0, Doc: "singular values of at most rcond times the largest count as 0; by default the larger size times the dtype's eps"}, {Name: "svd", Default: false, Doc: "whether ranks are counted by the singular values, and not estimated by a QR decomposition"}}, Doc: "The X that makes A X - B least, the least one of many, and the ranks of A.",
			Samples: []Sample{of("tall", tall, Shaped(4, 2), -1.0, false), of("by values", tall, Shaped(4, 2), -1.0, true), of("wide", wide, Shaped(2, 2), -1.0, false), of("empty", Shaped(0, 2), Shaped(0, 3), -1.0, false)}},
		Row{Name: "linalg_matrix_norm", Func: MatrixNorm, Args: []Arg{any2, {Name: "ord", Default: "fro"}}, Doc: "The norms of the matrices in two dimensions.", Samples: norms},
	)
}
