"""Put a trained mixture's weights under another method's routing."""

from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import MethodSpec


def convert(model: Transformer, method: MethodSpec) -> Transformer:
    """Return a model of `method` with the experts and routers of `model`, name by name.

    What the new routing has besides, a bias that balances load, starts at 0.
    """
    made = Transformer(model.spec, method, model.num_experts)
    lacking, left_over = made.load_state_dict(model.state_dict(), strict=False)
    assert not left_over and all(name.endswith(".bias") for name in lacking), (lacking, left_over)
    return made
