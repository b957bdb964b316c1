import numpy as np
import pytest

from cascadexml.propensity import propensities, published_constants


def test_follows_the_published_formula() -> None:
    # C = (ln 1000 - 1) * 2.5^0.55 = 5.907755 * 1.655263 = 9.778889; 1 + C * 4.5^-0.55 and 1 + C * 1.5^-0.55
    np.testing.assert_allclose(propensities(np.array([3, 0]), 1000, 0.55, 1.5), [5.275852, 8.824189], rtol=1e-5)


def test_more_documents_weigh_less_and_never_under_one() -> None:
    weights = propensities(np.arange(1000), 10_000, 0.6, 2.6)
    assert (np.diff(weights) < 0).all()
    assert (weights > 1).all()
    for num_train in (0, 1, 2):
        assert propensities(np.arange(3), num_train, 0.55, 1.5).tolist() == [1, 1, 1]


def test_published_constants() -> None:
    assert published_constants(670_091) == published_constants(2_812_281) == (0.6, 2.6)
    assert published_constants(501_070) == (0.5, 0.4)
    assert published_constants(30_938) == (0.55, 1.5)


@pytest.mark.parametrize(("a", "b"), [(-0.1, 1.5), (0.55, 0.0)])
def test_refuses_constants_without_meaning(a: float, b: float) -> None:
    with pytest.raises(ValueError, match="A must be at least 0 and B above 0"):
        propensities(np.array([1]), 10, a, b)
