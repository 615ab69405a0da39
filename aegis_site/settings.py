"""Settings of the project, taken from the environment. Safe for production unless a switch says otherwise.

DATABASE_URL, CELERY_BROKER_URL, REDIS_URL (the `redis` strategy, and sessions and cache unless CACHE_URL is
set) and REDLOCK_URLS (comma separated) name the stores; where none is set, those of a running `aegis demo`
are used. SECRET_KEY must be set with them. DEBUG, ALLOWED_HOSTS and CSRF_TRUSTED_ORIGINS are as in Django.
PLAIN_HTTP=true serves without TLS, for a demo on one's own machine only; BEHIND_TLS_PROXY=true believes a
proxy's X-Forwarded-Proto. STATIC_ROOT is where collected static files lie; unset, they are served from the
apps.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.state import embedded_folder, running_environment
from aegis_site.secret_key import demo_secret_key
from aegis_site.stores import IncompleteStoresError, resolve

BASE_DIR = Path(__file__).resolve().parent.parent
EMBEDDED_DIR = embedded_folder(BASE_DIR)

env = environ.Env()

# Stores

try:
    STORES = resolve(os.environ, partial(running_environment, EMBEDDED_DIR))
except (IncompleteStoresError, EmbeddedError) as error:
    raise ImproperlyConfigured(str(error)) from None

DATABASES = {"default": env.db_url_config(STORES.database_url)}
if DATABASES["default"].get("ENGINE") != "django.db.backends.postgresql":
    raise ImproperlyConfigured(
        "DATABASE_URL: its scheme is not postgres://. Aegis needs PostgreSQL; give a postgres:// URL."
    )
DATABASES["default"].setdefault("OPTIONS", {})
if "host" in DATABASES["default"]["OPTIONS"]:  # ?host=/folder/of/the/socket, as in libpq's own URLs
    DATABASES["default"]["HOST"] = DATABASES["default"]["OPTIONS"].pop("host")
DATABASES["default"]["OPTIONS"].setdefault("connect_timeout", 5)
DATABASES["default"]["CONN_MAX_AGE"] = env.int("CONN_MAX_AGE", 60)
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": STORES.cache_url,
        "KEY_PREFIX": "aegis-site",
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 1, "SOCKET_TIMEOUT": 1},
    }
}
# A cache that is down costs speed, not the site: sessions are kept in the database as well. What is passed
# over is logged.
DJANGO_REDIS_IGNORE_EXCEPTIONS = True
DJANGO_REDIS_LOG_IGNORED_EXCEPTIONS = True
SESSION_ENGINE = "django.contrib.sessions.backends.cached_db"

LOCKS = {
    "none": {"BACKEND": "locks.backends.none.NoLockBackend"},
    "database": {"BACKEND": "locks.backends.database.DatabaseLeaseBackend", "TTL": 6},
    "optimistic": {"BACKEND": "locks.backends.claim.OptimisticClaimBackend", "TTL": 6},
    "advisory": {"BACKEND": "locks.backends.advisory.AdvisoryLockBackend", "TTL": 6},
    "row_lock": {"BACKEND": "locks.backends.row_lock.RowLockBackend", "TTL": 6},
    "redis": {
        "BACKEND": "locks.backends.redis.RedisLockBackend",
        "LOCATION": STORES.redis_url,
        "KEY_PREFIX": "aegis",
        "TTL": 6,
    },
}
if STORES.redlock_urls:
    LOCKS["redlock"] = {
        "BACKEND": "locks.backends.redlock.RedlockBackend",
        "LOCATION": list(STORES.redlock_urls),
        "KEY_PREFIX": "aegis",
        "TTL": 6,
    }

AEGIS = {"IMPACT": "aegis_site.demo.impact.impact"}

# Celery

CELERY_BROKER_URL = STORES.broker_url
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Without time-outs a broker that swallows packets would hang a publish, and with it a whole beat pass.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_connect_timeout": 3,  # Redis
    "socket_timeout": 3,
    "read_timeout": 3,  # RabbitMQ
    "write_timeout": 3,
    "confirm_publish": True,
}
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "scheduler.beat:CatalogScheduler"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "celery"

# Applications

INSTALLED_APPS = [
    "scheduler",  # before the admin, whose templates it overrides
    "locks",
    "aegis_site.demo",
    "aegis_site.soak",
    "django_celery_beat",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "aegis_site.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "aegis_site.urls"
WSGI_APPLICATION = "aegis_site.wsgi.application"
ASGI_APPLICATION = "aegis_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

# Static files

STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", "") or None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = STATIC_ROOT is None

# Security

DEBUG = env.bool("DEBUG", False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SECRET_KEY = env.str("SECRET_KEY", "")
if not SECRET_KEY and not STORES.embedded:
    raise ImproperlyConfigured(
        "SECRET_KEY: not set. Put a long random value into the environment: `openssl rand -base64 48`."
    )
SECRET_KEY = SECRET_KEY or demo_secret_key(EMBEDDED_DIR)

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

TLS = not (DEBUG or env.bool("PLAIN_HTTP", False))
SECURE_SSL_REDIRECT = TLS
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]  # asked from inside, without TLS
SECURE_HSTS_SECONDS = env.int("HSTS_SECONDS", 31_536_000) if TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = TLS
SECURE_HSTS_PRELOAD = TLS
SESSION_COOKIE_SECURE = TLS
CSRF_COOKIE_SECURE = TLS
X_FRAME_OPTIONS = "DENY"
if env.bool("BEHIND_TLS_PROXY", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Logging: to stderr, so that a command's stdout holds its data only.

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name} {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", "INFO")},
}
