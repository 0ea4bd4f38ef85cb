"""Errors without a cluster, and what listing and help import."""

import subprocess
import sys

import pytest

from alchemy.cli import cluster
from alchemy.cluster import project_copy, ray_cluster, slurm_options
from alchemy.cluster.project_copy import list_excluded
from alchemy.errors import AlchemyError


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(ray_cluster, "is_installed", lambda name: False)
    with pytest.raises(AlchemyError, match=r"--on ray needs the package ray; pip install 'alchemy\[ray\]'"):
        ray_cluster.check_cluster("ray")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(AlchemyError, match=r"--on slurm needs the package submitit; pip install 'alchemy\[slurm\]'"):
        slurm_options.parse_options([], {})


def test_options_of_a_cluster_need_the_cluster(tmp_path, monkeypatch):
    args = cluster.argparse.Namespace(on=None, slurm=["partition=gpu"], ray=[])
    with pytest.raises(AlchemyError, match="--slurm has no effect without --on slurm"):
        cluster.choose_cluster(args)


def test_a_project_is_copied_without_records_and_not_if_it_is_large(tmp_path, monkeypatch):
    (tmp_path / "mine" / "run").mkdir(parents=True)
    (tmp_path / "mine" / "run" / "record.json").write_text("{}")
    (tmp_path / "train.toml").write_text("x" * 100)
    assert "/mine/run" in list_excluded(tmp_path)
    monkeypatch.setattr(project_copy, "MAX_BYTES", 50)
    with pytest.raises(AlchemyError, match="is larger than 0 MiB without its records"):
        list_excluded(tmp_path)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["queue", "ls"], ["sweep", "ls"]])
def test_help_and_listing_import_neither_ray_nor_submitit(tmp_path, words):
    command = [sys.executable, "-X", "importtime", "-m", "alchemy", *words]
    done = subprocess.run(command, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "alchemy.cli" in imported and not {"ray", "submitit", "torch"} & imported
