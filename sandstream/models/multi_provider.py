"""Combines several model providers; the prefix of a model's name selects one."""

from __future__ import annotations

from typing import Any, Literal

from sandstream.exceptions import UserError
from sandstream.models.interface import Model, ModelProvider
from sandstream.models.openai_provider import OpenAIProvider


class MultiProviderMap:
    """Prefixes and their providers."""

    def __init__(self) -> None:
        self._mapping: dict[str, ModelProvider] = {}

    def has_prefix(self, prefix: str) -> bool:
        return prefix in self._mapping

    def get_mapping(self) -> dict[str, ModelProvider]:
        """A copy."""
        return dict(self._mapping)

    def set_mapping(self, mapping: dict[str, ModelProvider]) -> None:
        self._mapping = dict(mapping)

    def get_provider(self, prefix: str) -> ModelProvider | None:
        return self._mapping.get(prefix)

    def add_provider(self, prefix: str, provider: ModelProvider) -> None:
        self._mapping[prefix] = provider

    def remove_provider(self, prefix: str) -> None:
        del self._mapping[prefix]


class MultiProvider(ModelProvider):
    """Chooses a provider by the prefix of a model's name: ``prefix/name`` asks the provider of the
    prefix for ``name``. Without a prefix, or with ``openai/``, an :class:`OpenAIProvider` is asked.

    Args:
        provider_map: The providers of other prefixes.
        openai_api_key: The key of the OpenAI provider.
        openai_base_url: Its URL.
        openai_client: Its ``AsyncOpenAI`` client, instead of the other settings.
        openai_organization: Its organization.
        openai_project: Its project.
        openai_use_responses: Use the Responses API instead of Chat Completions.
        openai_prefix_mode: ``alias`` removes the prefix ``openai/``; ``model_id`` sends the whole
            name, for gateways whose ids look like that.
        unknown_prefix_mode: ``error`` refuses an unknown prefix; ``model_id`` sends the whole name
            to the OpenAI provider.

    Raises:
        UserError: A mode is unknown, or a client is combined with its own settings.

    Example:
        providers = MultiProviderMap()
        providers.add_provider("echo", Echoes())
        config = RunConfig(model_provider=MultiProvider(provider_map=providers))
        result = await Runner.run(Agent(name="A", model="echo/any"), "Hello?", run_config=config)
    """

    def __init__(
        self,
        *,
        provider_map: MultiProviderMap | None = None,
        openai_api_key: str | None = None,
        openai_base_url: str | None = None,
        openai_client: Any | None = None,
        openai_organization: str | None = None,
        openai_project: str | None = None,
        openai_use_responses: bool | None = None,
        openai_prefix_mode: Literal["alias", "model_id"] = "alias",
        unknown_prefix_mode: Literal["error", "model_id"] = "error",
    ) -> None:
        for name, mode, choices in (
            ("openai_prefix_mode", openai_prefix_mode, ("alias", "model_id")),
            ("unknown_prefix_mode", unknown_prefix_mode, ("error", "model_id")),
        ):
            if mode not in choices:
                raise UserError(f"{name} must be one of {', '.join(choices)}; it is {mode!r}")
        self.provider_map = provider_map
        self.openai_provider = OpenAIProvider(
            api_key=openai_api_key,
            base_url=openai_base_url,
            openai_client=openai_client,
            organization=openai_organization,
            project=openai_project,
            use_responses=openai_use_responses,
        )
        self._openai_prefix_mode = openai_prefix_mode
        self._unknown_prefix_mode = unknown_prefix_mode

    def get_model(self, model_name: str | None) -> Model:
        """Find a model.

        Args:
            model_name: The name, with or without a prefix; ``None`` is the default model.

        Returns:
            The model.

        Raises:
            UserError: The prefix is unknown.
        """
        prefix, slash, rest = (model_name or "").partition("/")
        if not slash:
            return self.openai_provider.get_model(model_name)
        provider = self.provider_map.get_provider(prefix) if self.provider_map else None
        if provider is not None:
            return provider.get_model(rest)
        if prefix == "openai":
            name = rest if self._openai_prefix_mode == "alias" else model_name
            return self.openai_provider.get_model(name)
        if self._unknown_prefix_mode == "model_id":
            return self.openai_provider.get_model(model_name)
        known = sorted({"openai", *(self.provider_map.get_mapping() if self.provider_map else ())})
        raise UserError(
            f"No provider for the model {model_name!r}: the prefix {prefix!r} is not known (known: "
            f"{', '.join(known)}). Add it to provider_map, or send such names as they are with "
            "unknown_prefix_mode='model_id'."
        )

    async def aclose(self) -> None:
        await self.openai_provider.aclose()
        if self.provider_map is not None:
            for provider in self.provider_map.get_mapping().values():
                await provider.aclose()
