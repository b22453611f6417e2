"""What happens while roles end, models change, and strangers write."""
