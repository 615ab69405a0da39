from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from locks import connection, exclusive, lock_backends

PAGES = ["leaserecord", "claimrecord", "advisoryrecord", "fencerecord"]

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def rows() -> None:
    for table in ("lease", "claim", "fence"):
        connection.execute(f"INSERT INTO aegis_locks_{table} (name) VALUES ('shown') ON CONFLICT DO NOTHING")
    for alias in ("advisory", "row_lock"):
        with exclusive("shown", using=alias):
            pass


@pytest.mark.parametrize("page", PAGES)
def test_a_superuser_sees_rows_and_changes_none(admin_client: Client, page: str) -> None:
    listed = admin_client.get(reverse(f"admin:aegis_locks_{page}_changelist"), {"q": "shown"})
    assert listed.status_code == 200
    assert "shown" in listed.content.decode()
    assert "delete_selected" not in listed.content.decode()
    shown = admin_client.get(reverse(f"admin:aegis_locks_{page}_change", args=["shown"]))
    assert shown.status_code == 200
    assert 'name="_save"' not in shown.content.decode()
    assert admin_client.get(reverse(f"admin:aegis_locks_{page}_add")).status_code == 403
    for verb in ("change", "delete"):
        url = reverse(f"admin:aegis_locks_{page}_{verb}", args=["shown"])
        assert admin_client.post(url, {"post": "yes", "name": "other"}).status_code == 403


def test_a_free_row_is_not_shown_as_held(admin_client: Client) -> None:
    lease = lock_backends["database"].acquire("shown")
    assert lease is not None
    url = reverse("admin:aegis_locks_leaserecord_changelist")
    held = admin_client.get(url, {"q": "shown"}).content.decode()
    lock_backends["database"].release(lease)
    free = admin_client.get(url, {"q": "shown"}).content.decode()
    assert "icon-yes" in held
    assert "icon-yes" not in free
    assert lease.holder in free


@pytest.mark.parametrize("page", PAGES)
def test_view_permission_is_needed_and_enough(client: Client, page: str) -> None:
    user = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    client.force_login(user)
    url = reverse(f"admin:aegis_locks_{page}_changelist")
    assert client.get(url).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename=f"view_{page}"))
    assert client.get(url).status_code == 200
