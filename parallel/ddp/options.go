package ddp

import "github.com/plait-ml/plait/core"

// Default bucket sizes. The first bucket is small, so that communication starts early.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// Options configure a [Reducer]. The zero value has PyTorch's defaults.
type Options struct {
	// FirstBucketBytes and BucketBytes are the sizes at which a bucket is full; 0 means the default. A parameter is never split, so a large
	// one makes its bucket larger.
	FirstBucketBytes, BucketBytes int
	// Buffers are the module's buffers, such as running statistics. They are broadcast from rank 0 at construction and before each
	// synchronised forward pass. With KeepBuffers they are broadcast at construction only, and with LocalBuffers never.
	Buffers      []Named
	KeepBuffers  bool
	LocalBuffers bool
	// SkipInit skips the verification and the broadcast of parameters and buffers at construction.
	SkipInit bool
	// FindUnused allows parameters that get no gradient in backward. They may differ between ranks and steps. If no rank used a parameter,
	// its gradient does not change.
	FindUnused bool
	// StaticGraph promises that every step uses the same parameters. The first step finds the unused ones.
	StaticGraph bool
	// BucketView makes gradients views of the buckets, which saves one copy of all gradients.
	BucketView bool
	// DelayAllReduce reduces all buckets at the end of backward.
	DelayAllReduce bool
	// Delayed are parameters that may get gradients in several backward passes of one step. They are reduced after all other parameters,
	// once Until has its gradient. Until is a parameter of this or of another module. Gradients missing at that time count as zero. If all
	// parameters are delayed, the step may have several forward passes.
	Delayed []*core.Tensor `json:"-"`
	Until   *core.Tensor   `json:"-"`
	// SkipUnused promises, together with FindUnused, that all ranks have the same unused parameters in a step. Buckets without gradients are
	// then not sent.
	SkipUnused bool
	// Precision configures mixed precision.
	Precision Precision
	// Weighted computes the gradient of the mean loss over the global batch if the ranks' batches differ in size: gradients are weighted by
	// the numbers of samples given to [Reducer.Forward]. Otherwise the result is the mean of the ranks' gradients.
	Weighted bool
}

// A Named is a tensor with its name for messages.
type Named struct {
	Name   string
	Tensor *core.Tensor
}

// withDefaults returns the options with default values filled in.
func (o Options) withDefaults() (Options, error) {
	if o.FirstBucketBytes < 0 || o.BucketBytes < 0 {
		return o, core.Errorf(core.ValueError, "ddp", "the size of buckets must be positive, got %d and %d bytes", o.FirstBucketBytes, o.BucketBytes)
	}
	if o.FirstBucketBytes == 0 {
		o.FirstBucketBytes = FirstBucketBytes
		if o.BucketBytes != 0 {
			o.FirstBucketBytes = min(o.BucketBytes, FirstBucketBytes)
		}
	}
	if o.BucketBytes == 0 {
		o.BucketBytes = BucketBytes
	}
	if o.StaticGraph {
		o.FindUnused = false // the first step finds unused parameters
	}
	return o, nil
}
