"""`skysail model keygen`, `sign` and `verify`: who has made a package, and whether it is still as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.errors import UsageError
from deploy.state.packages import keys_of
from deploy.terminal import echo
from workers.packages.loading import checked
from workers.packages.signing.signed import keys_module, require_signed, sign

if TYPE_CHECKING:
    from deploy.config.settings import Settings

KINDS = ("ed25519", "p-256", "p-384", "p-521")
KEYGEN = """\
skysail model keygen release                 release.key signs, and stays with you; release.pub verifies
skysail model keygen release --kind p-256    a key that OpenSSF's `model_signing` knows, too
"""
SIGN = """\
skysail model sign models/forest-2 --key release.key
skysail model package forest.joblib models/forest-2 --name forest --sample rows.npy --sign release.key
"""
VERIFY = """\
skysail model verify models/forest-2 --keys keys/
skysail model verify models/forest-2         by the keys of `models.require_signature`
"""
folder_argument = click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))
key_type = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(cls=Verb, epilog=KEYGEN)
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Of the key.")
@json_option
def keygen(name: Path, *, kind: str, as_json: bool) -> None:
    """Make a key that signs packages: NAME.key, for its owner alone, and NAME.pub, which verifies.

    A key that is there is never overwritten, and the private one is never shown.
    """
    keys = keys_module()
    private, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    key = keys.generated(kind, public.name)
    try:
        keys.write(key, private, public)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} is there already: give another name, so that no key is lost") from error
    except OSError as error:
        raise UsageError(f"{private} cannot be written ({error.strerror}): name a folder of yours") from error
    if as_json:
        print_json({"private": str(private), "public": str(public), "kind": kind, "hint": key.public.hint})
        return
    echo(f"{private} signs packages: keep it where nobody else reads it, and a copy of it")
    echo(f"{public} verifies them: copy it into the folder that `models.require_signature` names")


@click.command("sign", cls=Verb, epilog=SIGN)
@folder_argument
@click.option("--key", "private", type=key_type, required=True, help="The private key, of `skysail model keygen`.")
@json_option
def sign_command(package: Path, *, private: Path, as_json: bool) -> None:
    """Sign PACKAGE as it lies there: its file `model.sig` then holds the digest of every other one, and a signature.

    A signature that was there is replaced. The package's digest stays: a version that is deployed may be signed.
    """
    if private.stat().st_mode & 0o077:
        echo(f"{private} can be read by others than its owner: chmod 600 {private}", err=True)
    key = keys_module().read_private(private)
    file = sign(package, key)
    if as_json:
        print_json({"signature": str(file), "hint": key.public.hint})
    else:
        echo(
            f"signed {package} with {private}; whoever has its public key checks it by: skysail model verify {package}"
            " --keys KEY"
        )


@click.command(cls=Verb, epilog=VERIFY)
@folder_argument
@click.option(
    "--keys",
    type=click.Path(path_type=Path, exists=True),
    help="A folder of public keys, or one of them.  [default: models.require_signature]",
)
@json_option
@with_settings
def verify(settings: Settings, package: Path, *, keys: Path | None, as_json: bool) -> None:
    """Check that PACKAGE is as it was signed, by the owner of one of the keys; nothing of it is run."""
    place = keys or keys_of(settings)
    if not place:
        raise UsageError("give --keys, a folder of public keys, or set `models.require_signature`")
    found = checked(package)
    key = require_signed(package, found, place)
    if as_json:
        print_json({"package": str(package), "digest": found.digest, "key": key.name, "hint": key.hint})
    else:
        manifest = found.manifest
        echo(f"{manifest.name} {manifest.version} in {package} is as it was signed with {key.name}")
