"""Modules of PyTorch's that libraries import and that Plait lacks: their names can be imported, and raise in use."""

_RPC = "there are no remote calls; ranks send tensors and objects to each other by torch.distributed"
_QUANTISED = "models are not quantised"

# By module: why it is not there, and its names.
REFUSED = {
    "torch.ao": (_QUANTISED, ""),
    "torch.ao.quantization": (
        _QUANTISED,
        "DeQuantStub FakeQuantize HistogramObserver MinMaxObserver MovingAverageMinMaxObserver QConfig QConfigMapping "
        "QuantStub convert default_qconfig fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig "
        "prepare prepare_qat propagate_qconfig_ quantize_dynamic quantize_qat",
    ),
    "torch.distributed.checkpoint.hf_storage": (
        "sharded checkpoints are not read from Hugging Face's files; use torch.distributed.checkpoint's own",
        "HuggingFaceStorageReader HuggingFaceStorageWriter",
    ),
    "torch.distributed.rpc": (
        _RPC,
        "BackendType RRef TensorPipeRpcBackendOptions WorkerInfo get_worker_info init_rpc remote rpc_async rpc_sync "
        "shutdown",
    ),
    "torch.distributed.tensor._utils": (
        "a distributed tensor's to_local has its part",
        "compute_local_shape_and_global_offset",
    ),
    "torch.nn.attention.flex_attention": (
        "there is no flexible attention; give scaled_dot_product_attention a mask",
        "AuxOutput AuxRequest BlockMask _DEFAULT_SPARSE_BLOCK_SIZE and_masks create_block_mask create_mask "
        "flex_attention noop_mask or_masks",
    ),
}
