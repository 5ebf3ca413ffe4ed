"""`[otel]`: what can be checked without a collector."""

from importlib.util import find_spec

from msgspec.structs import replace

from weft.gateway.settings.problems import Problems
from weft.gateway.settings.schema import OtelSettings
from weft.gateway.settings.secrets import SecretResolver, is_secret_header
from weft.upstream.urls import parse_base_url


def build_otel(otel: OtelSettings, secrets: SecretResolver, problems: Problems) -> OtelSettings:
    """Returns the settings, with the values that they refer to."""
    key = ("otel", "endpoint")
    if otel.endpoint is None:
        return otel
    if not otel.endpoint.startswith(("http://", "https://")):
        problems.add(key, "expected http://… or https://…")
    else:
        try:
            parse_base_url(otel.endpoint)
        except ValueError as problem:
            problems.add(key, str(problem))
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        problems.add(key, "OpenTelemetry needs its packages: pip install 'weft[otel]'")
    headers = secrets.resolve_values(otel.headers, ("otel", "headers"), is_secret_header)
    return replace(otel, headers=headers)
