package shader

// Tuning are figures that were measured on a kind of GPU, and by which kernels choose between ways of computing the same.
type Tuning struct {
	Multiprocessors int    // over which workgroups spread
	Tiles           []Tile // of matrix products
	// RemainderK is the least K from which the remainder beyond whole tiles is a product of its own; 0 for always. A program of the
	// large tile that looks in each step whether the next is whole takes a third longer, and a product of a small K a tenth of one with
	// a K of 1024.
	RemainderK int
	// PatchBytes is up to how many bytes convolutions store patches, and results in an order of their own: caches have room for them.
	PatchBytes int
	// ScoreBytes is how much memory the gradients of attention's scores may take; 0 for four times that of the operands, or 256 MiB.
	// ScoreBlocks is how many blocks of keys there must be room for if not for all: with fewer, a large GPU waits for the longest.
	ScoreBytes, ScoreBlocks int
	// NormElements is how many elements the workgroups of a multiprocessor that compute a layer norm's gradients have on their way: with
	// half as many they wait for memory, with twice as many they write partial sums for longer than they save. NormVectors is how many
	// vec4 of them an invocation has at most.
	NormElements, NormVectors int
	// SharedColumns is how many vec4 of columns a workgroup sums at most, and SharingGroups how many such workgroups there are at least.
	SharedColumns, SharingGroups int
	// FewSequences is up to how many sequences a recurrent step is one dispatch.
	FewSequences int
	// SearchedRows is up to how many rows a scatter compares each with all others, instead of sorting them: on an H100 10 to 20 us instead of 30
	// to 40 for rows of 64. Where all rows have one place, more would be the other way round: one workgroup adds them up.
	SearchedRows int
}

// A Tile divides a matrix product: a workgroup computes Rows x Cols results, K elements of K at a time, and each invocation High x Wide of
// them. Double has two tiles of each factor in workgroup memory, so that the next is written while one is read. Loose
// is for rows of a that are read one element at a time along K, and for gathers. Costs are in picoseconds an element of K: at least
// Least, and Add for a multiprocessor's tiles together and Each for each of them.
type Tile struct {
	Rows, Cols, K, High, Wide int
	Double, Loose             bool
	Least, Add, Each          int
}

// Threads returns the number of invocations of a workgroup.
func (t Tile) Threads() int { return t.Rows / t.High * (t.Cols / t.Wide) }

// DefaultTuning returns the figures for a GPU of which nothing was measured: those of an H200. Costs of tiles were fitted to 2700
// measurements of 99 products.
func DefaultTuning(software bool) Tuning {
	t := Tuning{
		Multiprocessors: 132,
		Tiles: []Tile{
			{Rows: 32, Cols: 32, K: 16, High: 4, Wide: 4, Least: 26_500, Add: 14_100, Each: 9_090},
			{Rows: 64, Cols: 64, K: 16, High: 4, Wide: 8, Add: 8_540, Each: 27_090},
			{Rows: 64, Cols: 128, K: 16, High: 8, Wide: 8, Least: 71_300, Add: 10_300, Each: 50_500, Loose: true},
			{Rows: 128, Cols: 128, K: 16, High: 8, Wide: 8, Add: 1_050, Each: 101_300, Double: true},
		},
		RemainderK: 1024, PatchBytes: 32 << 20, ScoreBlocks: 600, NormElements: 8192, NormVectors: 8,
		SharedColumns: 4, SharingGroups: 64, FewSequences: 128, SearchedRows: 1024,
	}
	if software {
		t.PatchBytes, t.SearchedRows = 0, 256
	}
	return t
}
