"""The transformer and its mixtures in pure PyTorch: modules return what they computed.

Read `transformer.py` and `block.py`, then what a block holds: `attention.py`, and `ffn.py` or one
of the FFNs that merge experts or route segments (`lory.py`, `segment_moe.py`, `smear.py`,
`token_merging.py`, `soft_moe.py`). `router.py` has one short function a routing rule, `segments.py`
what is decided once a segment. `losses.py` and `router_losses.py` are what is trained. A fast path
has its plain oracle beside it, named `*_reference`.
"""
