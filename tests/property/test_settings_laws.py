"""Laws of what is printed: whatever a password looks like, it is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.config.configuration import masked, to_yaml, without_secrets
from deploy.config.settings import Settings

CANARY = "hunter2"
ANY = st.text(max_size=12)
passwords = st.builds(lambda before, after: f"{before}{CANARY}{after}", ANY, ANY)
users = st.text(st.characters(exclude_characters=":"), max_size=8)


@given(users, passwords, st.sampled_from(["", ":6379", ":6379/0", "/0?x=y", "/a@b"]))
def test_no_password_in_a_url_is_shown(user: str, password: str, rest: str) -> None:
    """With any character in it, encoded or not, and after any user."""
    assert CANARY not in without_secrets(f"redis://{user}:{password}@host{rest}")


@given(st.text(st.characters(exclude_characters=":"), max_size=12).map(lambda text: f"{text}{CANARY}"))
def test_a_token_instead_of_user_and_password_is_not_shown(token: str) -> None:
    """Registries take such URLs."""
    assert CANARY not in without_secrets(f"https://{token}@registry.example:8081")


@given(st.sampled_from(["password", "Password", "ssl_password", "api-key", "token"]), passwords)
def test_no_password_in_a_query_is_shown(name: str, password: str) -> None:
    """redis-py takes `?password=`."""
    assert CANARY not in without_secrets(f"redis://host:6379/0?db=1&{name}={password}")


@given(st.sampled_from(["sasl_plain_password", "ssl_password", "client_secret", "sasl_oauth_token"]), passwords)
def test_no_property_with_a_telling_name_is_shown(name: str, password: str) -> None:
    """Whole settings, as they are printed at start."""
    settings = Settings.model_validate(
        {"kafka": {"properties": {name: password}}, "redis": {"password": password}, "registry": {"password": password}}
    )
    assert CANARY not in to_yaml(masked(settings))
    assert CANARY not in to_yaml(masked(settings, only_changed=True))
    assert CANARY not in repr(settings.redis)


@given(st.sampled_from(["redis://127.0.0.1:6379/0", "rediss://host", "unix:///run/redis.sock?db=1", "http://r:8081/a"]))
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    """Masking must not hide where things are."""
    assert without_secrets(url) == url
