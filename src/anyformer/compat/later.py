"""Keywords of x-transformers, in any release up to 2.31.10, that are no switches here.

They are known, so that asking for one says so by name.
"""

_LAYERS = """
    adaptive_condition_mlp adaptive_condition_mlp_expansion add_value_residual alibi_learned
    alibi_num_heads attn_aggregated_residual_kwargs attn_aggregated_residuals
    cross_attn_tokens_dropout custom_layers depth_scale_residual dim_condition disable_abs_pos_emb
    dynamic_pos_bias dynamic_pos_bias_log_distance dynamic_pos_bias_mlp_depth
    dynamic_pos_bias_norm dynamic_tanh_init_alpha gated_multi_residual hyper_conn_sinkhorn_iters
    integrate_layers layer_integrate_use_softmax layers_execute_order learned_reinject_input_gate
    learned_value_residual_mix mv_split_residual norm_add_unit_offset num_residual_streams
    only_attn only_cross orthog_residual par_ratio polar_bias_uniform_init polar_pos_emb
    pre_and_post_norm pre_norm_has_final_norm qk_norm_attn_seq_len qkv_receive_diff_residuals
    reinject_input rel_pos_kwargs residual_fn_kwargs rotary_base_rescale_factor
    rotary_interpolation_factor rotary_xpos rotary_xpos_scale_base rotate_num_heads shift_tokens
    softclamp_output softclamp_output_value unet_skips use_adaptive_layernorm
    use_adaptive_layerscale use_adaptive_rmsnorm use_derf use_dynamic_tanh use_qk_norm_attn
    use_simple_rmsnorm verbose zero_init_branch_output
"""

_ATTENTION = """
    add_zero_kv attend_sdp_kwargs cog_signed cope_max_pos cope_soft_onehot_pos cope_talking_heads
    custom_attn_fn data_dependent_alibi data_dependent_alibi_kwargs data_dependent_alibi_per_row
    data_dependent_alibi_per_row_dim_head dim_latent_kv dim_latent_q dim_out flash_pack_seq
    gate_value_heads gate_values gate_values_headwise gate_values_rank gumbel_softmax
    gumbel_softmax_hard gumbel_softmax_temp hard head_learned_sink head_scale
    hybrid_fold_axial_dim hybrid_learned_mix hybrid_mask_kwarg hybrid_module inverted_attention
    k_rmsnorm l2_distance laser laser_softclamp_value latent_rope_subheads
    learned_value_residual_mix low_rank_silu_gates onnxable orthog_projected_values
    orthog_projected_values_per_head output_gate output_gate_headwise output_gate_rank
    output_proj_depth pre_scale_post_talking_heads project_out qk_norm_dim_scale qk_norm_groups
    qk_norm_scale qkv_receive_diff_residuals rel_proj_max_dist rel_proj_num_distance_basis
    rotate_num_heads scale_init_value selective sparse_topk_straight_through swiglu_values use_cope
    use_latent_kv use_latent_q use_rel_proj_pos_bias value_dim_head value_rmsnorm zero_init_output
"""

_FEEDFORWARD = """
    custom_activation glu_gate_softclamp_value glu_mult_bias glu_softclamp glu_up_softclamp_value
    output_proj_depth post_act_ln softclamp_value solu zero_init_output
"""

_WRAPPER = """
    add_continuous_pred_head attn_pool attn_pool_depth attn_z_loss_weight average_pool_embed
    channels dim_pooled_tokens dropout embed_num_tokens emb_frac_gradient ff_deep_embed
    input_not_include_cache l2norm_embed logits_dim looped max_looped_steps
    memory_tokens_interspersed_every mixture_of_softmax mixture_of_softmax_k num_cls_tokens
    num_output_heads num_pooled_tokens num_register_tokens probabilistic recycling
    return_only_embed shift_mem_down sigsoftmax_logits squeeze_out_last_dim tie_embedding_scale
    to_logits token_emb train_max_recycle_steps use_cls_token use_identity_if_same_dim
"""

LATER: tuple[str, ...] = (
    *_LAYERS.split(),
    *_WRAPPER.split(),
    *(f"attn_{word}" for word in _ATTENTION.split()),
    *(f"ff_{word}" for word in _FEEDFORWARD.split()),
)
