"""The forms that values are printed in: tables, and the machine forms."""
