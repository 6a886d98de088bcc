"""What is done about personal data in texts; see `jobs.steps.personal_data`."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from jobs.settings.section import Section

KINDS = ("email", "ipv4", "ipv6", "phone", "card", "ssn", "iban")
PRESIDIO = "presidio"


def _switched_off(action: object) -> object:
    """YAML reads off as false."""
    return "off" if action is False else action


Action = Annotated[Literal["off", "replace", "drop"], BeforeValidator(_switched_off)]


class Placeholders(Section):
    """What stands where something was found: FineWeb's first addresses, and names of kinds."""

    email: str = "email@example.com"
    ipv4: str = "22.214.171.124"
    ipv6: str = "2001:db8::1"
    phone: str = "<PHONE_NUMBER>"
    card: str = "<CARD_NUMBER>"
    ssn: str = "<US_SSN>"
    iban: str = "<IBAN>"


class Presidio(Section):
    """Microsoft's Presidio for names, places and the rest; replaced by the entity, such as `<PERSON>`."""

    model: str | None = Field(None, description="folder of a spaCy model; absent: Presidio is not used")
    entities: tuple[str, ...] = Field(("PERSON",), min_length=1, description="Presidio's names of kinds")
    language: str = Field("en", description="of the model")
    min_score: float = Field(0.5, ge=0, le=1, description="of what Presidio found, for it to count")
    action: Action = Field("replace", description="what is done about it")

    @property
    def used(self) -> bool:
        """Whether it runs at all."""
        return self.model is not None and self.action != "off"


class PersonalData(Section):
    """Off, replaced or a reason to drop the document, kind by kind; FineWeb's formatter has e-mail and public IPv4."""

    enabled: bool = False
    email: Action = "replace"
    ipv4: Action = "replace"
    ipv6: Action = "replace"
    phone: Action = "off"
    card: Action = Field("off", description="payment cards: Luhn's checksum, issuer and length")
    ssn: Action = Field("off", description="US social security numbers")
    iban: Action = Field("off", description="bank accounts: checksum and length of the country")
    public_only: bool = Field(True, description="leave IP addresses that are not reachable from everywhere")
    regions: tuple[str, ...] = Field(
        ("US",), description="whose phone numbers count without their + and country code"
    )
    placeholders: Placeholders = Placeholders()
    presidio: Presidio = Presidio()

    @model_validator(mode="after")
    def _used(self) -> Self:
        fields = type(self).model_fields.items()
        unused = [
            name for name, field in fields if name != "enabled" and getattr(self, name) != field.default
        ]
        if unused and not self.enabled:
            raise ValueError(f"{', '.join(unused)} has no effect while enabled is false; set enabled: true")
        return self

    def action(self, kind: str) -> Action:
        """What is done about a kind."""
        return self.presidio.action if kind == PRESIDIO else getattr(self, kind)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are looked for, in the order in which they drop."""
        if not self.enabled:
            return ()
        found = tuple(kind for kind in KINDS if self.action(kind) != "off")
        return (*found, PRESIDIO) if self.presidio.used else found
