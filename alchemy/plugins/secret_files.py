"""Detect files that contain secrets, by name and content."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

from alchemy.config.secrets import ENDINGS, NAMES, contains_secret, is_secret_name
from alchemy.files import open_to_read

MAX_BYTES = 2**18  # how much of each file is searched

# lower case: the comparison ignores case
FOLDERS = (".ssh", ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".kaggle", "*.agilekeychain", "*.keychain")
FILES = (
    # environment files and password files of tools
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc", ".yarnrc.yml"),
    *(".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".htpasswd", ".git-credentials", ".dockercfg"),
    *(".dockerconfigjson", ".s3cfg", ".boto", ".passwd-s3fs", "rclone.conf", ".rclone.conf", ".databrickscfg"),
    *(".vault-token", ".vault_pass*", ".terraformrc", "terraform.rc", "*.tfstate", "*.tfstate.*", "*.tfvars"),
    *("kaggle.json", "wp-config.php", "localsettings.php", ".ftpconfig", "sftp-config.json", ".esmtprc"),
    *(".bash_history", ".zsh_history", ".sh_history", ".python_history", ".psql_history", ".mysql_history"),
    # keys, certificates and password stores
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.pkcs12"),
    *("*.jks", "*.jceks", "*.bks", "*.keystore", "*.kdb", "*.kdbx", "*.ppk", "*.ovpn", "*.keychain-db", "secring.*"),
)
# not for source code: `secrets_test.py` and `credentials.py` are judged by their content
NAME_PATTERNS = (
    *("secret.*", "secrets*", ".secrets*", "*.secret", "*.secrets", "*credential*", "password*", "passwd*"),
    *(".token", "*_token", "hf_token*", "github_token*", "api_token*", "bot_token*", "*api_key*", "*api-key*"),
    *("*apikey*", "service-account*.json", "service_account*.json", "*serviceaccount*.json", "client_secret*.json"),
    *("client-secret*.json", "*-adminsdk-*.json"),
)
SECRET_FOLDERS = ("secrets", ".secrets", "credentials")
SOURCE = (
    *(".py", ".pyi", ".pyx", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".js", ".jsx", ".ts", ".tsx"),
    *(".java", ".kt", ".go", ".rs", ".rb", ".r", ".jl", ".lua", ".m", ".scala", ".swift", ".php", ".pl", ".sh"),
    *(".bash", ".sql", ".html", ".css", ".md", ".rst", ".tex"),
)

CONTENTS = [
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
        ("a private key", rb"\b(?:PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{20,})"),
        ("a service account", rb"\"type\"\s*:\s*\"service_account\""),
        ("an AWS key", rb"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
        ("a GitHub token", rb"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})"),
        ("a GitLab token", rb"\bglpat-[\w-]{20,}"),
        ("a Hugging Face token", rb"\bhf_[A-Za-z0-9]{30,}\b"),
        ("an API key", rb"\bsk-(?=[\w-]*\d)[\w-]{20,}|\bgsk_[A-Za-z0-9]{40,}|\br8_[A-Za-z0-9]{37}\b"),
        ("a Slack token", rb"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}"),
        ("a webhook", rb"hooks\.slack\.com/\w+/[\w/+]{20,}|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
        ("a Google key", rb"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}"),
        ("a Stripe key", rb"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("a package registry token", rb"\bnpm_[A-Za-z0-9]{36}\b|\bpypi-AgE[\w-]{40,}|\bdckr_pat_[\w-]{20,}"),
        ("an API token", rb"\bSG\.[\w-]{16,}\.[\w-]{16,}|\bdapi[0-9a-f]{32}\b|\bdo[opr]_v1_[0-9a-f]{64}\b"),
        ("a bot token", rb"\b\d{8,10}:AA[\w-]{33}\b"),
        ("a storage key", rb"AccountKey=[A-Za-z0-9+/=]{40,}"),
        ("a JSON web token", rb"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
        ("a password in a URL", rb"://(?!user(?:name)?:pass)[^\s:/@'\"<>{}$]+:[^\s/@'\"<>{}$]{3,}@\w"),
        (
            "a password or key",  # a literal with letters and digits, unlike most placeholders
            rb"(?i)(?:password|passwd|secret|secret_access_key|api_?key|auth_?token|access_?token|hf_token)['\"]?\s*[:=]\s*"
            rb"['\"](?=[^'\"\s]*\d)(?=[^'\"\s]*[a-z])(?![^'\"\s]*[${}<>*])[^'\"\s]{16,}['\"]",
        ),
    )
]  # fmt: skip


# in config files, a setting with such a name is a secret regardless of its value
SETTINGS = (".toml", ".ini", ".cfg", ".conf", ".yaml", ".yml", ".properties")
SETTING = re.compile(
    rb"(?im)(?:^|[\s,{.'\"])(?:%b|[\w-]*(?:%b))['\"]?\s*[:=]\s*['\"](?!\*\*\*)[^'\"\s${}<>]{4,}['\"]"
    % tuple("|".join(names).replace("_", "[_-]").encode() for names in (NAMES, ENDINGS))
)


def secret_reason(folder: str, name: str) -> str:
    """Return why a file or folder is considered secret, or an empty string if it is not."""
    path, lower = os.path.join(folder, name), name.lower()
    if os.path.islink(path):
        return ""  # copied as a link, without its target
    if os.path.isdir(path):
        return "its name" if _matches_any(lower, FOLDERS) else ""
    return "its name" if has_secret_name(folder, name) else _find_secret(path)


def has_secret_name(folder: str, name: str) -> bool:
    """Return whether the name of a file, or of its folder, says that it contains secrets."""
    folder, name = os.path.basename(os.path.realpath(folder)).lower(), name.lower()
    if _matches_any(name, FILES) or (folder, name) == (".docker", "config.json"):
        return True
    stem, suffix = os.path.splitext(name)
    if suffix in SOURCE:
        return False
    return _matches_any(name, NAME_PATTERNS) or is_secret_name(stem.lstrip(".")) or folder in SECRET_FOLDERS


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _find_secret(path: str) -> str:
    try:
        with open_to_read(path) as file:
            head = file.read(MAX_BYTES)
    except OSError:  # the copy reports the error
        return ""
    return find_secret_in(head, path)


def find_secret_in(content: bytes, name: str) -> str:
    """Return what secret the content of a file contains, or an empty string."""
    if b"\0" in content[:1024]:  # binary
        return ""
    if contains_secret(content.decode("utf-8", "replace")):
        return "a secret from the config"
    if name.lower().endswith(SETTINGS) and SETTING.search(content):
        return "a secret setting"
    return next((what for what, pattern in CONTENTS if pattern.search(content)), "")


def has_secret_folder(path: str) -> bool:
    """Return whether a relative path leads through a folder that contains secrets."""
    return any(_matches_any(part, FOLDERS) for part in path.lower().split("/")[:-1])
