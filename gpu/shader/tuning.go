package shader

// Tuning are figures measured on a kind of GPU. Kernels choose between algorithms by them.
type Tuning struct {
	Multiprocessors int    // how many of them workgroups spread over
	Tiles           []Tile // the tiles of matrix products
	// RemainderK is the smallest K from which the remainder of K, beyond whole tiles, is computed by a product of its own; 0 means always.
	// The alternative is a program that checks in each step whether the tile is whole: with the large tile it takes a third longer. A
	// separate product for the remainder costs a tenth of a product with a K of 1024.
	RemainderK int
	// PatchBytes is the size up to which a convolution stores its im2col matrix, and its results in another order: caches hold that much.
	PatchBytes int
	// AlignedWork is the number of multiplications from which a library's product on tensor cores is computed on aligned rows. A matrix is
	// copied for that if each element is used at least AlignedReuse times.
	AlignedWork, AlignedReuse int
	// TensorConvolutions has tensor cores compute convolutions of 16 bits by implicit GEMM, instead of products of stored patches. With it a
	// step of ResNet-50 takes 0.82 of the time on an H200.
	TensorConvolutions bool
	// ScoreBytes is the memory that the gradients of attention scores may take; 0 means four times the operands' memory, or 256 MiB if that
	// is more. ScoreBlocks is how many blocks of keys must fit it, if not all do: with fewer, a large GPU idles until the longest has
	// ended.
	ScoreBytes, ScoreBlocks int
	// NormElements is how many elements the workgroups on a multiprocessor process at a time in the backward pass of layer norm. With half
	// as many, latency of memory shows; with twice as many, writing the partial sums costs more than it saves. NormVectors is how many vec4
	// an invocation has at most.
	NormElements, NormVectors int
	// ColumnVectors is how many vec4 of columns a workgroup sums at most. ColumnGroups is the least number of workgroups for which a
	// workgroup takes more than one.
	ColumnVectors, ColumnGroups int
	// FewSequences is the number of sequences up to which a recurrent step is a single dispatch.
	FewSequences int
	// SearchedRows is the number of rows up to which a scatter finds duplicates by comparing each index with all others, instead of
	// sorting. On an H100 that takes 10 to 20 us instead of 30 to 40 for rows of 64 elements. With more rows it can be slower: if all
	// indices are equal, one workgroup adds all rows.
	SearchedRows int
	// CombineGroups is the number of workgroups that sum the memory of several GPUs: enough to fill the link between them, few enough that
	// other work can run beside them.
	CombineGroups int
}

// A Tile is how a matrix product is divided. A workgroup computes Rows x Cols results, in steps of K along the inner dimension; each
// invocation computes ThreadRows x ThreadCols of them.
//
// With Double, workgroup memory holds two tiles of each factor, so that one is filled while the other is read. A tile with ScalarLoads is
// used only for products whose rows of a cannot be read as vec4 along K, and for gathers; one with Double only for other products.
//
// Costs are in picoseconds for each element of K: the tiles of one multiprocessor cost BaseCost together and TileCost each, and at least
// MinCost.
type Tile struct {
	Rows, Cols, K, ThreadRows, ThreadCols int
	Double, ScalarLoads                   bool
	MinCost, BaseCost, TileCost           int
}

// Threads returns the number of invocations of a workgroup.
func (t Tile) Threads() int { return t.Rows / t.ThreadRows * (t.Cols / t.ThreadCols) }

// DefaultTuning returns the figures of an H200, which are used for every GPU. The costs of tiles were fitted to 2700 measurements of 99
// products.
func DefaultTuning(software bool) Tuning {
	t := Tuning{
		Multiprocessors: 132,
		Tiles: []Tile{
			{Rows: 32, Cols: 32, K: 16, ThreadRows: 4, ThreadCols: 4, MinCost: 26_500, BaseCost: 14_100, TileCost: 9_090},
			{Rows: 64, Cols: 64, K: 16, ThreadRows: 4, ThreadCols: 8, BaseCost: 8_540, TileCost: 27_090},
			{Rows: 64, Cols: 128, K: 16, ThreadRows: 8, ThreadCols: 8, MinCost: 71_300, BaseCost: 10_300, TileCost: 50_500, ScalarLoads: true},
			{Rows: 128, Cols: 128, K: 16, ThreadRows: 8, ThreadCols: 8, BaseCost: 1_050, TileCost: 101_300, Double: true},
		},
		RemainderK: 1024, PatchBytes: 32 << 20, TensorConvolutions: true, AlignedWork: 1 << 32, AlignedReuse: 512, ScoreBlocks: 600, NormElements: 8192, NormVectors: 8,
		ColumnVectors: 4, ColumnGroups: 64, FewSequences: 128, SearchedRows: 1024, CombineGroups: 128,
	}
	if software {
		t.PatchBytes, t.SearchedRows = 0, 256
	}
	return t
}
