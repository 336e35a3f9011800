# Written by internal/coverage/make_homes.py, beside PyTorch; do not edit.
"""Where PyTorch has names: by module, the package above that has them too, and the names."""

HOMES = {
    "torch.autograd.anomaly_mode": """
torch.autograd detect_anomaly set_detect_anomaly
""",
    "torch.autograd.function": """
torch.autograd Function NestedIOFunction
""",
    "torch.autograd.grad_mode": """
torch.autograd enable_grad enforce_grad_layout_policy inference_mode no_grad set_grad_enabled
set_multithreading_enabled
""",
    "torch.cuda.amp.autocast_mode": """
torch.cuda.amp autocast custom_bwd custom_fwd
""",
    "torch.cuda.amp.common": """
torch.cuda.amp amp_definitely_not_available
""",
    "torch.cuda.amp.grad_scaler": """
torch.cuda.amp GradScaler
""",
    "torch.cuda.graphs": """
torch.cuda CUDAGraph export_dot export_graph_data graph graph_pool_handle is_current_stream_capturing
make_graphed_callables
""",
    "torch.cuda.green_contexts": """
torch.cuda GreenContext
""",
    "torch.cuda.memory": """
torch.cuda CUDAPluggableAllocator MemPool caching_allocator_alloc caching_allocator_delete
caching_allocator_disabled caching_allocator_enable change_current_allocator empty_cache get_allocator_backend
get_per_process_memory_fraction host_memory_stats host_memory_stats_as_nested_dict list_gpu_processes
max_memory_allocated max_memory_cached max_memory_reserved mem_get_info memory_allocated memory_cached
memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary
reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats set_per_process_memory_fraction
use_mem_pool
""",
    "torch.cuda.random": """
torch.cuda get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all
set_rng_state set_rng_state_all
""",
    "torch.cuda.streams": """
torch.cuda Event ExternalStream Stream
""",
    "torch.distributed.checkpoint.api": """
torch.distributed.checkpoint CheckpointException
""",
    "torch.distributed.checkpoint.default_planner": """
torch.distributed.checkpoint DefaultLoadPlanner DefaultSavePlanner
""",
    "torch.distributed.checkpoint.filesystem": """
torch.distributed.checkpoint FileSystemReader FileSystemWriter
""",
    "torch.distributed.checkpoint.fsspec_filesystem": """
torch.distributed.checkpoint FsspecReader FsspecWriter
""",
    "torch.distributed.checkpoint.hf_storage": """
torch.distributed.checkpoint HuggingFaceStorageReader HuggingFaceStorageWriter
""",
    "torch.distributed.checkpoint.metadata": """
torch.distributed.checkpoint BytesStorageMetadata ChunkStorageMetadata Metadata TensorStorageMetadata
""",
    "torch.distributed.checkpoint.optimizer": """
torch.distributed.checkpoint load_sharded_optimizer_state_dict
""",
    "torch.distributed.checkpoint.planner": """
torch.distributed.checkpoint LoadPlan LoadPlanner ReadItem SavePlan SavePlanner WriteItem
""",
    "torch.distributed.checkpoint.protocol": """
torch.distributed.checkpoint CheckpointableTensor
""",
    "torch.distributed.checkpoint.quantized_hf_storage": """
torch.distributed.checkpoint QuantizedHuggingFaceStorageReader
""",
    "torch.distributed.checkpoint.state_dict_loader": """
torch.distributed.checkpoint load load_state_dict
""",
    "torch.distributed.checkpoint.state_dict_saver": """
torch.distributed.checkpoint async_save save save_state_dict
""",
    "torch.distributed.checkpoint.storage": """
torch.distributed.checkpoint StorageReader StorageWriter
""",
    "torch.distributed.device_mesh": """
torch.distributed DeviceMesh init_device_mesh
""",
    "torch.distributed.distributed_c10d": """
torch.distributed AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig
BarrierOptions BroadcastOptions DebugLevel GatherOptions GroupMember GroupName P2POp PrefixStore ProcessGroup
ProcessGroupGloo ProcessGroupNCCL ProcessGroupNCCL2 ProcessGroupNCCLLazy ReduceOp ReduceOptions
ReduceScatterOptions ScatterOptions Store Work all_gather all_gather_coalesced all_gather_into_tensor
all_gather_object all_gather_single all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier
batch_isend_irecv broadcast broadcast_object_list destroy_process_group gather gather_into_tensor
gather_object gather_single get_backend get_backend_config get_backend_impl get_debug_level
get_default_backend_for_device get_global_rank get_group_rank get_node_local_rank get_pg_count
get_process_group_ranks get_rank get_world_size group init_process_group irecv is_backend_available
is_gloo_available is_initialized is_mpi_available is_nccl_available is_torchelastic_launched is_ucc_available
is_xccl_available isend monitored_barrier new_group new_subgroups new_subgroups_by_enumeration record_comm
recv recv_object_list reduce reduce_op reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
scatter_object_list send send_object_list set_timeout shrink_group split_group supports_complex
""",
    "torch.distributed.fsdp.api": """
torch.distributed.fsdp BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig
LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig
ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings StateDictType
""",
    "torch.distributed.fsdp.fully_sharded_data_parallel": """
torch.distributed.fsdp FullyShardedDataParallel OptimStateKeyType
""",
    "torch.distributions.bernoulli": """
torch.distributions Bernoulli
""",
    "torch.distributions.beta": """
torch.distributions Beta
""",
    "torch.distributions.binomial": """
torch.distributions Binomial
""",
    "torch.distributions.categorical": """
torch.distributions Categorical
""",
    "torch.distributions.cauchy": """
torch.distributions Cauchy
""",
    "torch.distributions.chi2": """
torch.distributions Chi2
""",
    "torch.distributions.constraint_registry": """
torch.distributions biject_to transform_to
""",
    "torch.distributions.continuous_bernoulli": """
torch.distributions ContinuousBernoulli
""",
    "torch.distributions.dirichlet": """
torch.distributions Dirichlet
""",
    "torch.distributions.distribution": """
torch.distributions Distribution
""",
    "torch.distributions.exp_family": """
torch.distributions ExponentialFamily
""",
    "torch.distributions.exponential": """
torch.distributions Exponential
""",
    "torch.distributions.fishersnedecor": """
torch.distributions FisherSnedecor
""",
    "torch.distributions.gamma": """
torch.distributions Gamma
""",
    "torch.distributions.generalized_pareto": """
torch.distributions GeneralizedPareto
""",
    "torch.distributions.geometric": """
torch.distributions Geometric
""",
    "torch.distributions.gumbel": """
torch.distributions Gumbel
""",
    "torch.distributions.half_cauchy": """
torch.distributions HalfCauchy
""",
    "torch.distributions.half_normal": """
torch.distributions HalfNormal
""",
    "torch.distributions.independent": """
torch.distributions Independent
""",
    "torch.distributions.inverse_gamma": """
torch.distributions InverseGamma
""",
    "torch.distributions.kl": """
torch.distributions kl_divergence register_kl
""",
    "torch.distributions.kumaraswamy": """
torch.distributions Kumaraswamy
""",
    "torch.distributions.laplace": """
torch.distributions Laplace
""",
    "torch.distributions.lkj_cholesky": """
torch.distributions LKJCholesky
""",
    "torch.distributions.log_normal": """
torch.distributions LogNormal
""",
    "torch.distributions.logistic_normal": """
torch.distributions LogisticNormal
""",
    "torch.distributions.lowrank_multivariate_normal": """
torch.distributions LowRankMultivariateNormal
""",
    "torch.distributions.mixture_same_family": """
torch.distributions MixtureSameFamily
""",
    "torch.distributions.multinomial": """
torch.distributions Multinomial
""",
    "torch.distributions.multivariate_normal": """
torch.distributions MultivariateNormal
""",
    "torch.distributions.negative_binomial": """
torch.distributions NegativeBinomial
""",
    "torch.distributions.normal": """
torch.distributions Normal
""",
    "torch.distributions.one_hot_categorical": """
torch.distributions OneHotCategorical OneHotCategoricalStraightThrough
""",
    "torch.distributions.pareto": """
torch.distributions Pareto
""",
    "torch.distributions.poisson": """
torch.distributions Poisson
""",
    "torch.distributions.relaxed_bernoulli": """
torch.distributions RelaxedBernoulli
""",
    "torch.distributions.relaxed_categorical": """
torch.distributions RelaxedOneHotCategorical
""",
    "torch.distributions.studentT": """
torch.distributions StudentT
""",
    "torch.distributions.transformed_distribution": """
torch.distributions TransformedDistribution
""",
    "torch.distributions.transforms": """
torch.distributions AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform
CumulativeDistributionTransform ExpTransform IndependentTransform LowerCholeskyTransform
PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform SoftplusTransform
StackTransform StickBreakingTransform TanhTransform Transform identity_transform
""",
    "torch.distributions.uniform": """
torch.distributions Uniform
""",
    "torch.distributions.von_mises": """
torch.distributions VonMises
""",
    "torch.distributions.weibull": """
torch.distributions Weibull
""",
    "torch.distributions.wishart": """
torch.distributions Wishart
""",
    "torch.functional": """
torch atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist
chain_matmul einsum lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index
""",
    "torch.fx.graph": """
torch.fx CodeGen Graph
""",
    "torch.fx.graph_module": """
torch.fx GraphModule
""",
    "torch.fx.interpreter": """
torch.fx Interpreter Transformer
""",
    "torch.fx.node": """
torch.fx Node has_side_effect map_arg
""",
    "torch.fx.proxy": """
torch.fx Proxy
""",
    "torch.fx.subgraph_rewriter": """
torch.fx replace_pattern
""",
    "torch.multiprocessing.reductions": """
torch.multiprocessing init_reductions
""",
    "torch.nn.modules.activation": """
torch.nn CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish
MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink
Softsign Tanh Tanhshrink Threshold
""",
    "torch.nn.modules.adaptive": """
torch.nn AdaptiveLogSoftmaxWithLoss
""",
    "torch.nn.modules.batchnorm": """
torch.nn BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm
""",
    "torch.nn.modules.channelshuffle": """
torch.nn ChannelShuffle
""",
    "torch.nn.modules.container": """
torch.nn Container ModuleDict ModuleList ParameterDict ParameterList Sequential
""",
    "torch.nn.modules.conv": """
torch.nn Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d
LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
""",
    "torch.nn.modules.distance": """
torch.nn CosineSimilarity PairwiseDistance
""",
    "torch.nn.modules.dropout": """
torch.nn AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout
""",
    "torch.nn.modules.flatten": """
torch.nn Flatten Unflatten
""",
    "torch.nn.modules.fold": """
torch.nn Fold Unfold
""",
    "torch.nn.modules.instancenorm": """
torch.nn InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
""",
    "torch.nn.modules.linear": """
torch.nn Bilinear Identity LazyLinear Linear
""",
    "torch.nn.modules.linear_cross_entropy_options": """
torch.nn LinearCrossEntropyOptions
""",
    "torch.nn.modules.loss": """
torch.nn BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss
HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss
MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss
SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss
""",
    "torch.nn.modules.module": """
torch.nn Module
""",
    "torch.nn.modules.normalization": """
torch.nn CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm
""",
    "torch.nn.modules.padding": """
torch.nn CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d
ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d
ZeroPad3d
""",
    "torch.nn.modules.pixelshuffle": """
torch.nn PixelShuffle PixelUnshuffle
""",
    "torch.nn.modules.pooling": """
torch.nn AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d
AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d
LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
""",
    "torch.nn.modules.rnn": """
torch.nn GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase
""",
    "torch.nn.modules.sparse": """
torch.nn Embedding EmbeddingBag
""",
    "torch.nn.modules.transformer": """
torch.nn Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
""",
    "torch.nn.modules.upsampling": """
torch.nn Upsample UpsamplingBilinear2d UpsamplingNearest2d
""",
    "torch.nn.parallel.distributed": """
torch.nn.parallel DistributedDataParallel
""",
    "torch.nn.parallel.scatter_gather": """
torch.nn.parallel gather scatter
""",
    "torch.nn.parameter": """
torch.nn Buffer Parameter UninitializedBuffer UninitializedParameter
""",
    "torch.nn.utils.clip_grad": """
torch.nn.utils clip_grad_norm clip_grad_norm_ clip_grad_value_
""",
    "torch.nn.utils.convert_parameters": """
torch.nn.utils parameters_to_vector vector_to_parameters
""",
    "torch.nn.utils.fusion": """
torch.nn.utils fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights
""",
    "torch.nn.utils.init": """
torch.nn.utils skip_init
""",
    "torch.nn.utils.memory_format": """
torch.nn.utils convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format
""",
    "torch.optim.adadelta": """
torch.optim Adadelta
""",
    "torch.optim.adagrad": """
torch.optim Adagrad
""",
    "torch.optim.adam": """
torch.optim Adam
""",
    "torch.optim.adamax": """
torch.optim Adamax
""",
    "torch.optim.adamw": """
torch.optim AdamW
""",
    "torch.optim.asgd": """
torch.optim ASGD
""",
    "torch.optim.lbfgs": """
torch.optim LBFGS
""",
    "torch.optim.nadam": """
torch.optim NAdam
""",
    "torch.optim.optimizer": """
torch.optim Optimizer
""",
    "torch.optim.radam": """
torch.optim RAdam
""",
    "torch.optim.rmsprop": """
torch.optim RMSprop
""",
    "torch.optim.rprop": """
torch.optim Rprop
""",
    "torch.optim.sgd": """
torch.optim SGD
""",
    "torch.optim.sparse_adam": """
torch.optim SparseAdam
""",
    "torch.profiler.profiler": """
torch.profiler CuspyConfig ExecutionTraceObserver PerformanceMetricsConfig ProfilerAction
ProfilerActivityConfig profile schedule supported_activities tensorboard_trace_handler
""",
    "torch.storage": """
torch TypedStorage UntypedStorage
""",
    "torch.utils.data.dataloader": """
torch.utils.data DataLoader
""",
    "torch.utils.data.datapipes.datapipe": """
torch.utils.data DFIterDataPipe DataChunk IterDataPipe MapDataPipe
""",
    "torch.utils.data.dataset": """
torch.utils.data ChainDataset ConcatDataset Dataset IterableDataset StackDataset Subset TensorDataset
random_split
""",
    "torch.utils.data.distributed": """
torch.utils.data DistributedSampler
""",
    "torch.utils.data.sampler": """
torch.utils.data BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler
WeightedRandomSampler
""",
}
